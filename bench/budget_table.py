"""What `python -m bench.budget` kept last, as a part of the performance page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench import markdown
from bench.results import FOLDER

KEPT: Final = FOLDER / "budget" / "budget.json"
GOALS: Final = {1.0: 1.02, 0.7: 1.12, 0.5: 1.25, 0.3: 1.6}
MIB: Final = 1 << 20
HALF: Final = 0.5  # the share at which first steps and resident memory are told
NEAR: Final = 16.0  # MiB of resident memory that a budget may be exceeded by

Rows = Sequence[dict[str, Any]]


def kept(file: Path = KEPT) -> dict[str, Any]:
    """The commit, the load and the rows; empty where nothing was kept."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def part(found: dict[str, Any], chart: str) -> list[str]:
    """The section of the page, with the chart in it."""
    if not found:
        return []
    rows: Rows = found["rows"]
    ran = [row for row in rows if row["slowdown"] is not None]
    met = sum(row["slowdown"] <= GOALS[row["share"]] for row in ran)
    same = "the same" if all(row["same"] for row in rows) else "**not all the same**"
    searching = max((row["searching"] for row in ran), default=0.0)
    return [
        "## Within a budget",
        "Time of a training step within a budget, as a multiple of the same step without one just"
        " before it, by the wall (by the processor): the median, once the first six steps are over,"
        " which stand by themselves. A budget is a share of what the program"
        " holds at its peak above its parameters, gradients and optimizer state. Off: bytes are"
        " only made again; on: they may be spilled to a file as well. First, and resident (MiB"
        " above the budget and what a process has that ran the program and let go of it, at its"
        " peak): where the budget is half"
        f" (`python -m bench.budget`, commit {found['commit']}, load average {found['load']}"
        " before it).",
        table(rows),
        f"{met} of {len(rows)} are within the goal, {len(rows) - len(ran)} are below what one op"
        f" needs. Two programs without a budget were up to {_apart(rows):.1%} apart, in the same"
        f" way. Losses were {same}, and nothing above a budget was held. Choosing what goes took"
        f" {searching:.1%} of a step at most.",
        chart,
    ]


def table(rows: Rows) -> str:
    """A row for each program and way, a column for each budget."""
    shares = list(dict.fromkeys(row["share"] for row in rows))
    head = ["program", "spilling", *[f"{share:g}" for share in shares], "first", "resident"]
    body = []
    for name in dict.fromkeys(row["program"] for row in rows):
        for spill in (False, True):
            found = {r["share"]: r for r in rows if (r["program"], r["spill"]) == (name, spill)}
            half = found.get(HALF, {})
            first, grown = half.get("first"), half.get("resident")
            body.append(
                [
                    name,
                    "on" if spill else "off",
                    *[_cell(found[share]) for share in shares],
                    markdown.NONE if first is None else f"{first:.2f}",
                    markdown.NONE
                    if grown is None
                    else markdown.bold(f"{grown:+.0f}", important=grown > NEAR),
                ]
            )
    goals = [f"{GOALS[share]:.2f}" for share in shares]
    return markdown.table(head, [*body, ["goal", "", *goals, "", f"{NEAR:+.0f}"]])


def _apart(rows: Rows) -> float:
    return max([abs(float(row.get("apart", 1.0)) - 1) for row in rows])


def _cell(row: dict[str, Any]) -> str:
    if row["slowdown"] is None:
        return "below the floor"
    text = f"{row['slowdown']:.2f} ({row['slowdown_cpu']:.2f})"
    return text if row["same"] else f"{text} **other losses**"
