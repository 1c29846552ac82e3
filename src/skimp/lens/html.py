"""Reports as one HTML page that needs nothing else: no network, no files beside it."""

from __future__ import annotations

import base64
import json
import os
import zlib
from dataclasses import asdict, replace
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from skimp.lens.data import ROLES, Allocations, Report

SCRIPTS = ("data.js", "timeline.js", "flame.js", "tables.js", "main.js")
BORN, FREED, RELEASED = 1, -1, 0  # kinds of events
SAVED = ROLES.index("saved for backward")

Integers = np.ndarray[Any, np.dtype[np.int64]]
Array = np.ndarray[Any, Any]


def to_html(*reports: Report) -> str:
    """One report, or two side by side. 10^6 allocations are some 10 MB and open within 2 s."""
    title = " and ".join(dict.fromkeys(f"skimp: {report.program}" for report in reports))
    runs = ",\n".join(_run(report) for report in reports)
    page = _resource("page.html")
    for name, text in (
        ("title", escape(title)),
        ("css", _resource("page.css")),
        ("here", _scripted(os.getcwd() + os.sep)),
        ("js", "\n".join(map(_resource, SCRIPTS))),
        ("runs", runs),  # last: a program's text is never looked through for names
    ):
        page = page.replace(f"@{name}@", text)
    return page


def _resource(name: str) -> str:
    return files("skimp.lens").joinpath("page", name).read_text("utf-8")


def _run(report: Report) -> str:
    """A report as JavaScript: allocations as packed columns, the rest as JSON."""
    detail = report.detail
    plain: dict[str, Any] = asdict(replace(report, detail=Allocations()))
    del plain["detail"], plain["shared"]
    modules, numbers = _numbered(detail.module)
    index, kind, when = _events(detail)
    # times as 32-bit integers; a unit is at least a microsecond
    unit = max(1e-6, float(when.max(initial=0.0)) / (2**32 - 1))
    columns = {
        "bytes": _packed(detail.bytes, "u4" if max(detail.bytes, default=0) < 2**32 else "f8"),
        "place": _packed(detail.place, "i4"),
        "role": _packed(detail.role, "u1"),
        "module": _packed(numbers, "i4"),
        "index": _packed(index, "i4"),
        "kind": _packed(kind, "i1"),
        "when": _packed(np.floor(when / unit), "u4"),
    }
    rows = {order: i for i, order in enumerate(detail.order)}
    storages = {rows[s.order]: asdict(s) for s in report.shared if s.order in rows}
    data = {
        "report": plain,
        "storages": storages,
        "modules": modules,
        "kept": detail.kept,
        "unit": unit,
        "columns": columns,
    }
    return _scripted(data)


def _scripted(data: Any) -> str:
    """As JavaScript: "</script>" and "<!--" in a program's text would end or hide the script."""
    return json.dumps(data).replace("<", "\\u003c")


def _numbered(names: list[str]) -> tuple[list[str], list[int]]:
    known: dict[str, int] = {}
    numbers = [known.setdefault(name, len(known)) for name in names]
    return list(known), numbers


def _events(detail: Allocations) -> tuple[Integers, Integers, Array]:
    """All that happened, in order: which allocation, whether it was born, freed or released by the
    last node that had saved it (a temporary from then on), and when.
    """
    born, freed, saved = (np.asarray(x, float) for x in (detail.born, detail.freed, detail.saved))
    order, gone = (np.asarray(x, np.int64) for x in (detail.order, detail.gone))
    dead = np.flatnonzero(gone >= 0)
    index = np.concatenate([np.arange(len(order)), dead])
    kind = np.repeat([BORN, FREED], [len(order), len(dead)])
    when = np.concatenate([born, freed[dead]])
    in_order = np.argsort(np.concatenate([order, gone[dead]]), kind="stable")
    index, kind = index[in_order], kind[in_order]
    when = np.maximum.accumulate(when[in_order])
    released = np.flatnonzero((np.asarray(detail.role) == SAVED) & (saved >= 0))
    released = released[np.argsort(saved[released], kind="stable")]
    at = np.searchsorted(when, saved[released], side="left")
    return (
        np.insert(index, at, released),
        np.insert(kind, at, RELEASED),
        np.insert(when, at, saved[released]),
    )


def _packed(values: Any, kind: str) -> dict[str, str]:
    raw = np.asarray(values).astype(f"<{kind}").tobytes()
    return {"kind": kind, "data": base64.b64encode(zlib.compress(raw, 3)).decode()}
