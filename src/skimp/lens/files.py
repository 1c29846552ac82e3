"""Reports as JSON, written and read: `docs/notes/lens.md` says what is in it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from skimp._engine.budget.statistics import Again, Outcome
from skimp.lens.data import (
    VERSION,
    Advice,
    Alias,
    Alive,
    Allocations,
    Copied,
    Frame,
    Growth,
    Held,
    Mark,
    Peak,
    Place,
    Report,
    Saved,
    Shared,
    Step,
)


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
    data["peak"] = _peak(data["peak"])
    data["copies"] = tuple([_copied(c) for c in data["copies"]])
    data["frames"] = tuple([Frame(**f) for f in data["frames"]])
    data["places"] = tuple([_place(p) for p in data["places"]])
    data["steps"] = tuple([Step(**s) for s in data["steps"]])
    data["growth"] = None if data["growth"] is None else _placed(Growth, data["growth"])
    data["alive"] = tuple([Alive(_placed(Held, a["held"]), a["chain"]) for a in data["alive"]])
    data["shared"] = tuple([_shared(s) for s in data["shared"]])
    data["advice"] = tuple(
        [Advice(**{**a, "modules": tuple(a["modules"])}) for a in data["advice"]]
    )
    data["saved"] = tuple([_placed(Saved, s) for s in data["saved"]])
    if data.get("budget") is not None:
        again = tuple([Again(*one) for one in data["budget"]["again"]])
        data["budget"] = Outcome(**{**data["budget"], "again": again})
    data["marks"] = tuple([Mark(**m) for m in data["marks"]])
    kept = {name: tuple(data["detail"].get(name, ())) for name in ("steps", "kept")}
    data["detail"] = Allocations(**{**data["detail"], **kept})
    return Report(**data)


def load(path: str | Path) -> Report:
    """The report in a file. OSError, ValueError: there is none."""
    return from_json(Path(path).read_text(encoding="utf-8"))


def _shared(data: dict[str, Any]) -> Shared:
    tensors = tuple(
        [
            Alias(**{**t, "shape": tuple(t["shape"]), "strides": tuple(t["strides"])})
            for t in data["tensors"]
        ]
    )
    return Shared(data["order"], tensors, data["more"])


def _place(data: dict[str, Any]) -> Place:
    return Place(**{**data, "stack": tuple(data["stack"])})


def _placed(kind: Any, data: dict[str, Any]) -> Any:
    return kind(**{**data, "place": _place(data["place"])})


def _peak(data: dict[str, Any]) -> Peak:
    held = tuple([_placed(Held, h) for h in data["held"]])
    return Peak(**{**data, "place": _place(data["place"]), "held": held})


def _copied(data: dict[str, Any]) -> Copied:
    made = None if data["made"] is None else _place(data["made"])
    shape, strides = tuple(data["shape"]), tuple(data["strides"])
    return Copied(
        **{**data, "place": _place(data["place"]), "made": made, "shape": shape, "strides": strides}
    )
