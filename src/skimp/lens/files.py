"""Reports as JSON, written and read: `docs/notes/lens.md` says what is in it."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from skimp.lens.data import VERSION, Report


def to_json(report: Report) -> str:
    """All of the report: bytes as integers, times in seconds."""
    data = asdict(report)
    data["copied"] = report.copied
    data["version"] = VERSION
    return json.dumps(data)


def from_json(text: str) -> Report:
    """The report that `to_json` wrote. ValueError: it is something else."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.pop("version", None) != VERSION:
        raise ValueError(f"this is no report of version {VERSION} of skimp's JSON")
    del data["copied"]
    made: Report = _made(Report, data)
    return made


def load(path: str | Path) -> Report:
    """The report in a file. OSError, ValueError: there is none."""
    return from_json(Path(path).read_text(encoding="utf-8"))


def _made(kind: Any, data: Any) -> Any:
    """What of this type the data was made of: records by their fields, tuples from lists."""
    if data is None:
        return None
    if hasattr(kind, "__dataclass_fields__"):
        fields = _fields(kind)
        return kind(**{name: _made(fields[name], value) for name, value in data.items()})
    if hasattr(kind, "_fields"):  # a named tuple of plain values
        return kind(*data)
    if get_origin(kind) is tuple:
        inside = get_args(kind)[0]
        return tuple([_made(inside, value) for value in data])
    return data


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """The types of a record's fields; of those that may be None, what else they may be."""
    found = get_type_hints(kind)
    for name, hint in found.items():
        if NoneType in get_args(hint):
            (found[name],) = [one for one in get_args(hint) if one is not NoneType]
    return found
