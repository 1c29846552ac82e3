"""The table of what small ops cost beyond NumPy's own calls, by kind of op."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from bench.markdown import NONE, table
from bench.overhead import KINDS, PLAIN_GOAL, RECORDED_GOAL
from bench.results import Results

Overheads = dict[str, float]  # seconds beyond NumPy's, by row


def overheads(results: Results, kind: str) -> Overheads:
    """The median over turns of skimp's seconds less NumPy's, of the rows that have both."""
    found: Overheads = {}
    for name in KINDS[kind]:
        beyond = [
            mine - other
            for round_ in results.rounds
            if {"skimp", "numpy"} <= (engines := round_.get(f"micro/{name}", {})).keys()
            for mine, other in zip(
                *(engines[e].get("slices", []) for e in ("skimp", "numpy")), strict=False
            )
            if mine is not None and other is not None
        ]
        if beyond:
            found[name] = median(beyond)
    return found


def overhead(results: Results) -> str:
    body = []
    for kind in KINDS:
        found = overheads(results, kind)
        if not found:
            continue
        recorded = {name: s for name, s in found.items() if name.endswith(", recorded")}
        plain = {name: s for name, s in found.items() if name not in recorded}
        body.append([
            kind, str(len(found)), *middle_and_most(plain.values()),
            *middle_and_most(recorded.values()), over(plain, PLAIN_GOAL, recorded, RECORDED_GOAL),
        ])  # fmt: skip
    head = ["", "ops", "median", "most", "recorded", "most", "above the goal"]
    return table(head, body) if body else NONE


def middle_and_most(beyond: Iterable[float]) -> list[str]:
    known = list(beyond)
    return [micros(median(known)), micros(max(known))] if known else [NONE, NONE]


def over(plain: Overheads, goal: float, recorded: Overheads, recorded_goal: float) -> str:
    """The names of the ops that cost more than the goals, the worst first."""
    far = {n: s - goal for n, s in plain.items() if s > goal}
    far |= {n: s - recorded_goal for n, s in recorded.items() if s > recorded_goal}
    return ", ".join(f"`{n}`" for n in sorted(far, key=lambda n: -far[n])) or "none"


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


def section(results: Results) -> list[str]:
    """What docs/performance.md says of it."""
    shown = overhead(results)
    if not shown:
        return []
    return [
        "### Beyond NumPy's own calls",
        "skimp's time less that of the NumPy calls that give the same values"
        " ([bench/overhead.py](../bench/overhead.py)), by kind of op, unrecorded and recorded:"
        f" binding, checks, the tensor, the node. The goals are {micros(PLAIN_GOAL)} and"
        f" {micros(RECORDED_GOAL)} for every op.",
        shown,
    ]
