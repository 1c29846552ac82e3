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
        "Time of a training step within a budget, as a multiple of that without one, by the wall"
        " (by the processor); the least of some turns. A budget is a share of what the program"
        " holds at its peak above its parameters, gradients and optimizer state. Off: bytes are"
        " only made again; on: they may be spilled to a file as well. Resident: MiB above an idle"
        " process and the budget, at its peak, where the budget is half"
        f" (`python -m bench.budget`, commit {found['commit']}, load average {found['load']}"
        " before it).",
        table(rows),
        f"{met} of {len(rows)} are within the goal, {len(rows) - len(ran)} are below what one op"
        f" needs. Losses were {same}, and nothing above a budget was held. Choosing what goes took"
        f" {searching:.1%} of a step at most.",
        chart,
    ]


def table(rows: Rows) -> str:
    """A row for each program and way, a column for each budget."""
    shares = list(dict.fromkeys(row["share"] for row in rows))
    head = ["program", "spilling", *[f"{share:g}" for share in shares], "resident"]
    body = []
    for name in dict.fromkeys(row["program"] for row in rows):
        for spill in (False, True):
            found = {r["share"]: r for r in rows if (r["program"], r["spill"]) == (name, spill)}
            grown = [r["resident"] for r in found.values() if r["resident"] is not None][:1]
            body.append(
                [
                    name,
                    "on" if spill else "off",
                    *[_cell(found[share]) for share in shares],
                    *[markdown.bold(f"{g:+.0f}", important=g > NEAR) for g in grown],
                    *[markdown.NONE] * (not grown),
                ]
            )
    goals = [f"{GOALS[share]:.2f}" for share in shares]
    return markdown.table(head, [*body, ["goal", "", *goals, f"{NEAR:+.0f}"]])


def _cell(row: dict[str, Any]) -> str:
    if row["slowdown"] is None:
        return "below the floor"
    text = f"{row['slowdown']:.2f} ({row['slowdown_cpu']:.2f})"
    return text if row["same"] else f"{text} **other losses**"
