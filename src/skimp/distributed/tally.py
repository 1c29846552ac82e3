"""The bytes and the time of communication by line, for `skimp launch --report`."""

from __future__ import annotations

import json
import multiprocessing.util
from pathlib import Path

from skimp.distributed.work import ACCOUNTS, Work

VARIABLE = "SKIMP_COMMUNICATION"  # the file to write when the process ends
_lines: dict[tuple[str, int, str], list[float]] = {}  # calls, bytes, seconds


def begin(path: Path) -> None:
    """Count from now on, and write what was counted when the process ends."""
    if not ACCOUNTS:
        ACCOUNTS.append(_count)
        multiprocessing.util.Finalize(None, _write, (path,), exitpriority=5)


def _count(work: Work, seconds: float) -> None:
    site = work._site
    place = (site.filename, site.lineno) if site is not None else ("", 0)
    label = work._label
    row = _lines.setdefault((*place, label.name), [0, 0, 0.0])
    row[0] += 1
    row[1] += label.nbytes or sum([t.nbytes for t in label.tensors])
    row[2] += seconds


def _write(path: Path) -> None:
    rows = [
        {"file": file, "line": line, "what": what, "calls": n, "bytes": size, "seconds": seconds}
        for (file, line, what), (n, size, seconds) in _lines.items()
    ]
    path.write_text(json.dumps(rows))
