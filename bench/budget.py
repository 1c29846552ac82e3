"""What a budget costs: `python -m bench.budget`, at most 8 minutes (`--minutes`).

Eight programs, each at 1.0, 0.7, 0.5 and 0.3 of its own peak above its floor of parameters,
gradients and optimizer state, without a file and with one. All of a program are there at once, each
in a process of its own, and take turns step by step: two without a budget, one before each half of
the others. A step is compared with the same step of the one that came last, so that both find the
machine as busy; what counts is the median of these ratios, by the wall and by the processor, once
the budgets have learned what they can. The first steps are told by themselves, and so is how far
the two without a budget were from each other: a cell says no more than that.

Losses have to be the same, and no byte above the budget held. What was found is kept, and stands in
the performance page (`--print`: it is printed only).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bench import page
from bench.budget_programs import PROGRAMS
from bench.budget_table import KEPT, table
from bench.budget_worker import Facts
from bench.engines import ROOT
from bench.machine import commit
from bench.results import load as load_results, newest

SHARES: Final = (1.0, 0.7, 0.5, 0.3)
FIRST: Final = 6  # steps, in which a budget learns
ROUNDS: Final = 60  # steps of each at most, however much time there is
LEAST: Final = FIRST + 3  # however little there is
MIB: Final = 1 << 20


class Row(NamedTuple):
    """One program within one budget; no slowdown: an op needs more."""

    program: str
    spill: bool
    share: float
    budget: int
    slowdown: float | None = None
    slowdown_cpu: float | None = None
    first: float | None = None  # the first steps together
    apart: float = 1.0  # how far two programs without a budget were, by the same measure
    held: int = 0
    evictions: int = 0  # of a step, as the next three
    rematerialized: int = 0
    read: int = 0
    searching: float = 0.0
    same: bool = True
    resident: float | None = None  # MiB above the budget and what libraries keep for the program


class Worker:
    """A program in a process of its own; `times` are its steps', by the wall and the processor."""

    def __init__(self, name: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.budget_worker", name, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=ROOT,
        )  # fmt: skip
        self.losses: list[float] = []
        self.times: list[tuple[float, float]] = []
        self.fits = True

    def step(self) -> None:
        """One more, unless an op needs more than there is."""
        if self.fits:
            found = self._ask("step")
            self.fits = "refused" not in found
            if self.fits:
                loss, wall, busy = found["step"]
                self.losses.append(loss)
                self.times.append((wall, busy))

    def end(self) -> Facts | None:
        """What it held and did; None where it was refused."""
        found = self._ask("end") if self.fits else None
        self._process.communicate()
        return None if found is None else Facts(**found)

    def _ask(self, word: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # refused while it was set up
            print(word, file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


class Trial:
    """A program within one budget, and the times of those without one just before its steps."""

    def __init__(self, name: str, share: float, spill: bool, free: Facts) -> None:
        self.name, self.share, self.spill = name, share, spill
        self.nbytes = free.floor + int(share * (free.peak - free.floor))
        words = ["--budget", str(self.nbytes), *["--no-spill"] * (not spill)]
        self.worker = Worker(name, *words)
        self.free: list[tuple[float, float]] = []

    def step(self, free: Worker) -> None:
        self.worker.step()
        self.free.append(free.times[-1])

    def row(self, free: Worker, apart: float) -> Row:
        """What was found, against the times without a budget."""
        head = (self.name, self.spill, self.share, self.nbytes)
        facts = self.worker.end()
        if facts is None or facts.beyond:  # a kernel's scratch memory: its op needs more
            return Row(*head)
        if facts.held > self.nbytes:
            raise AssertionError(f"{self.name}: {facts.held} bytes held, {self.nbytes} allowed")
        times, done = self.worker.times, len(self.worker.times)
        wall = sum([t[0] for t in times])
        return Row(
            *head, ratio(times, self.free, 0), ratio(times, self.free, 1),
            wall_of(times[:FIRST]) / wall_of(self.free[:FIRST]), apart, facts.held,
            facts.evictions // done, facts.rematerialized // done, facts.read // done,
            facts.searching / wall, self.worker.losses == free.losses,
            (facts.resident - self.nbytes) / MIB,
        )  # fmt: skip


Times = Sequence[tuple[float, float]]


def ratio(times: Times, others: Times, way: int) -> float:
    """The median of the ratios of steps, once the first ones are over."""
    pairs = list(zip(times, others, strict=True))[FIRST:]
    return statistics.median([one[way] / other[way] for one, other in pairs])


def wall_of(times: Times) -> float:
    return sum([wall for wall, _ in times])


def measured(name: str, seconds: float) -> list[Row]:
    """All budgets of a program in turns, for about so long."""
    began = time.perf_counter()
    free = sized(name)
    pair = [Worker(name), Worker(name)]
    trials = [Trial(name, share, spill, free) for share in SHARES for spill in (False, True)]
    rounds = 0
    while rounds < LEAST or (
        rounds < ROUNDS and (time.perf_counter() - began) * (rounds + 1) / rounds < seconds
    ):
        one, other = pair[:: 1 if rounds % 2 else -1]
        one.step()
        for trial in trials[: len(trials) // 2]:
            trial.step(one)
        other.step()
        for trial in trials[len(trials) // 2 :]:
            trial.step(other)
        rounds += 1
        trials = trials[1:] + trials[:1]  # nobody is always just behind the other one
    apart = ratio(pair[0].times, pair[1].times, 0)
    rows = [trial.row(pair[0], apart) for trial in trials]
    for worker in pair:
        worker.end()
    return sorted(rows, key=lambda row: (-row.share, row.spill))


def sized(name: str) -> Facts:
    """What a program holds without a budget, once it has an optimizer's state."""
    worker = Worker(name)
    for _ in range(2):
        worker.step()
    found = worker.end()
    assert found is not None
    return found


def main() -> int:
    """Measure, print and keep; 1 if losses were others."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="that all takes, about")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="names, as a regex")
    parser.add_argument("--print", action="store_true", help="print the table only")
    options: Any = parser.parse_args()
    load = os.getloadavg()[0]
    names = [name for name in PROGRAMS if options.only.search(name)]
    ends = time.perf_counter() + 60 * options.minutes
    rows: list[Row] = []
    for i, name in enumerate(names):
        rows += measured(name, (ends - time.perf_counter()) / (len(names) - i))
        print(table([row._asdict() for row in rows if row.program == name]), flush=True)
    if not options.print:
        keep(rows, load)
    return 0 if all(row.same for row in rows) else 1


def keep(rows: Sequence[Row], load: float) -> None:
    """Write the rows to where the page finds them, and the page."""
    found = {"commit": commit()[0], "load": round(load, 2), "rows": [r._asdict() for r in rows]}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(found, indent=1) + "\n")
    newer = newest()
    page.write(load_results(newer), ROOT, newer)


if __name__ == "__main__":
    sys.exit(main())
