"""What a budget costs: `python -m bench.budget [--turns 3] [--only gpt]`.

Eight programs, each at 1.0, 0.7, 0.5 and 0.3 of its own peak above its floor of parameters,
gradients and optimizer state, without a file and with one. Steps with and without the budget take
turns; what is compared is the least time of a step, by the wall and by the processor (which other
work on the machine disturbs less, and which waits for no disk). Losses have to be the same.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import skimp
from bench.budget_programs import PROGRAMS, Trained
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError

SHARES = (1.0, 0.7, 0.5, 0.3)
GOALS = {1.0: 1.02, 0.7: 1.12, 0.5: 1.25, 0.3: 1.6}
MIB = 1 << 20


class Row(NamedTuple):
    """One program within one budget; no slowdown: an op needs more."""

    program: str
    spill: bool
    share: float
    budget: int
    slowdown: float | None
    slowdown_cpu: float | None
    held: int
    evictions: int
    remade: int
    read: int
    searching: float
    same: bool


class Plain(NamedTuple):
    """A program without a budget."""

    losses: list[float]
    seconds: tuple[float, float]  # by the wall, by the processor
    peak: int
    floor: int


def steps(trained: Trained, count: int) -> tuple[list[float], tuple[float, float]]:
    """Losses, and the least times of a step after the first."""
    losses, wall, busy = [], [], []
    for _ in range(count):
        began, worked = time.perf_counter(), time.process_time()
        losses.append(trained.step())
        wall.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
    return losses, (min(wall[1:]), min(busy[1:]))


def floor_of(trained: Trained) -> int:
    """Bytes of parameters, their gradients and the optimizer's state."""
    states = [s for o in trained.optimizers for s in o.state.values()]
    tensors = [t for s in states for t in s.values() if isinstance(t, skimp.Tensor)]
    own: int = sum([p.numel() * p.element_size() for p in trained.parameters])
    state: int = sum([t.numel() * t.element_size() for t in tensors])
    return 2 * own + state


def plain(name: str, count: int) -> Plain:
    gc.collect()
    skimp.manual_seed(0)
    before = host.allocated
    skimp.memory.reset_peak_memory_stats()
    trained = PROGRAMS[name](skimp)
    losses, seconds = steps(trained, count)
    return Plain(losses, seconds, skimp.memory.max_memory_allocated() - before, floor_of(trained))


def within(name: str, nbytes: int, spill: bool, count: int) -> Any:
    gc.collect()
    skimp.manual_seed(0)
    skimp.memory.empty_cache()
    with skimp.memory.budget(nbytes, spill=spill):
        skimp.memory.reset_peak_memory_stats()
        return steps(PROGRAMS[name](skimp), count)


def measured(name: str, share: float, spill: bool, turns: int, count: int) -> Row:
    """Turns with and without the budget."""
    fast = slow = (float("inf"), float("inf"))
    same = True
    nbytes = held = 0
    counts.reset()
    for _ in range(turns):
        free = plain(name, count)
        fast = _least(fast, free.seconds)
        gc.collect()
        nbytes = host.allocated + free.floor + int(share * (free.peak - free.floor))
        try:
            losses, seconds = within(name, nbytes, spill, count)
        except OutOfMemoryError:
            return Row(name, spill, share, nbytes, None, None, 0, 0, 0, 0, 0.0, True)
        slow, same = _least(slow, seconds), same and losses == free.losses
        held = max(held, host.peak)
        if held > nbytes:
            raise AssertionError(f"{name}: {held} bytes were held within a budget of {nbytes}")
    done = turns * count
    return Row(
        name, spill, share, nbytes, slow[0] / fast[0], slow[1] / fast[1], held,
        counts.evictions // done, counts.remade_bytes // done, counts.was_read // done,
        counts.search_seconds / (done * slow[0]), same,
    )  # fmt: skip


def _least(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return min(a[0], b[0]), min(a[1], b[1])


def table(rows: list[Row]) -> str:
    """A row for each program and way, a column for each budget."""
    heads = [f"{share}" for share in SHARES]
    lines = [
        "Slowdown by the wall (by the processor); shares of the peak above the floor.",
        "",
        f"| program | spilling | {' | '.join(heads)} |", "|---|---|" + "---|" * len(heads),
    ]  # fmt: skip
    for name in dict.fromkeys(row.program for row in rows):
        for spill in (False, True):
            found = {row.share: row for row in rows if (row.program, row.spill) == (name, spill)}
            cells = [_cell(found.get(share)) for share in SHARES]
            lines.append(f"| {name} | {'on' if spill else 'off'} | {' | '.join(cells)} |")
    goals = " | ".join(f"{GOALS[share]:.2f}" for share in SHARES)
    return "\n".join([*lines, f"| goal | | {goals} |"])


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.slowdown is None:
        return "below the floor"
    return f"{row.slowdown:.2f} ({row.slowdown_cpu:.2f})" + ("" if row.same else " (other losses!)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="in each turn")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="names, as a regex")
    parser.add_argument("--json", type=Path, help="where to keep the rows")
    options: Any = parser.parse_args()
    rows = []
    for name in PROGRAMS:
        if not options.only.search(name):
            continue
        for spill in (False, True):
            for share in SHARES:
                rows.append(measured(name, share, spill, options.turns, options.steps))
                print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return 0 if all(row.same for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
