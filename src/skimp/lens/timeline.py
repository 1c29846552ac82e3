"""A report as PyTorch's profiler exports memory: bytes by category over time, and all events."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from skimp.lens.data import ROLES, Report
from skimp.lens.html import to_html

# PyTorch's categories are parameter, optimizer state, input, temporary, activation, gradient,
# autograd detail, and unknown
_COLUMN: Final = {
    "parameter": 0, "optimizer state": 1, "data": 2, "temporary": 3, "saved for backward": 4,
    "gradient": 5, "buffer": 7,
}  # fmt: skip
_WIDTH: Final = 9  # one for each category, behind a 0
_THERE, _MADE, _CHANGED, _GONE = 1, 2, 3, 4  # PyTorch's actions

Event = tuple[int, int, int, int]  # microseconds, action, bytes more, category


def export(report: Report, path: str | Path, since: float = 0.0) -> None:
    """Write it as the end of the file's name says: `.html` (the page), `.raw.json.gz` (events),
    `.json.gz` or `.json` (times and sizes). `since` is when the recording began, in seconds.
    """
    name = str(path)
    if name.endswith(".html"):
        Path(path).write_text(to_html(report), encoding="utf-8")
        return
    start = round(since * 1e6)
    content = list(events(report, start)) if ".raw.json" in name else series(report, start)
    text = json.dumps(content)
    if name.endswith(".gz"):
        Path(path).write_bytes(gzip.compress(text.encode()))
    else:
        Path(path).write_text(text, encoding="utf-8")


def events(report: Report, start: int = 0) -> Iterator[Event]:
    """Everything that was made and gone; what turns into a temporary leaves its category first."""
    d = report.detail
    temporary, saved = _COLUMN["temporary"], _COLUMN["saved for backward"]
    found: list[tuple[float, int, int, int, int]] = []
    for i, nbytes in enumerate(d.bytes):
        category = _COLUMN[ROLES[d.role[i]]]
        made = _MADE if d.born[i] > 0.0 else _THERE
        found.append((d.born[i], d.order[i], made, nbytes, category))
        if category == saved and d.saved[i] >= 0:
            found.append((d.saved[i], d.order[i], _CHANGED, -nbytes, category))
            found.append((d.saved[i], d.order[i], _CHANGED, nbytes, temporary))
            category = temporary
        if d.gone[i] >= 0:
            found.append((d.freed[i], d.gone[i], _GONE, -nbytes, category))
    for when, _, action, more, category in sorted(found):
        yield start + round(when * 1e6), action, more, category


def series(report: Report, start: int = 0) -> tuple[list[int], list[list[int]]]:
    """The moments at which something changed, and the bytes of each category after them."""
    times: list[int] = []
    sizes: list[list[int]] = []
    for when, _, more, category in events(report, start):
        if not times or when != times[-1]:
            times.append(when)
            sizes.append(sizes[-1].copy() if sizes else [0] * _WIDTH)
        sizes[-1][1 + category] += more
    return times, sizes
