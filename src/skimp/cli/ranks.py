"""One report of many ranks: each one's peak by role, and communication by line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from skimp._engine.memory.sizes import readable as shown


class Rank(NamedTuple):
    """What one rank has written."""

    number: int
    memory: dict[str, Any]
    lines: list[dict[str, Any]]


def read(folder: Path, n: int) -> list[Rank]:
    """The ranks that have ended by themselves."""
    found = []
    for i in range(n):
        memory, lines = folder / f"memory.{i}.json", folder / f"communication.{i}.json"
        if memory.exists():
            told = json.loads(lines.read_text()) if lines.exists() else []
            found.append(Rank(i, json.loads(memory.read_text()), told))
    return found


def by_role(rank: Rank) -> Counter[str]:
    """The bytes at the peak, by what they were."""
    found: Counter[str] = Counter()
    for held in rank.memory["peak"]["held"]:
        found[held["role"]] += held["bytes"]
    return found


def to_text(ranks: list[Rank]) -> str:
    """The report."""
    if not ranks:
        return "no rank has written a report\n"
    lines = ["Peak of each rank's tensors"]
    for rank in ranks:
        roles = ", ".join([f"{role} {shown(n)}" for role, n in by_role(rank).most_common() if n])
        peak = shown(rank.memory["peak"]["bytes"])
        lines.append(f"  rank {rank.number}: {peak}" + (f" ({roles})" if roles else ""))
    lines.append("Communication by line, all ranks")
    for (file, line, what), (calls, size, seconds) in _together(ranks):
        place = f"{file}:{line}" if line else "inside"
        lines.append(f"  {shown(int(size)):>10} {seconds:8.3f} s {calls:6.0f} x {what} at {place}")
    return "\n".join(lines) + "\n"


def _together(ranks: list[Rank]) -> list[tuple[tuple[str, int, str], list[float]]]:
    rows: dict[tuple[str, int, str], list[float]] = {}
    for rank in ranks:
        for one in rank.lines:
            row = rows.setdefault((one["file"], one["line"], one["what"]), [0, 0, 0.0])
            for i, name in enumerate(("calls", "bytes", "seconds")):
                row[i] += one[name]
    return sorted(rows.items(), key=lambda pair: -pair[1][1])


def to_json(ranks: list[Rank]) -> str:
    """The same as JSON: each rank's own report, and its lines."""
    return json.dumps(
        [{"rank": r.number, "memory": r.memory, "communication": r.lines} for r in ranks]
    )
