"""What a budget costs: `python -m bench.budget`, at most 12 minutes (`--minutes`).

Eight programs, each at 1.0, 0.7, 0.5 and 0.3 of its own peak above its floor of parameters,
gradients and optimizer state, without a file and with one. Each time that a program runs within a
budget it runs without one just before, so that both have as many chances; what is compared is the
least time of a step, by the wall and by the processor (which other work on the machine disturbs
less, and which waits for no disk). Losses have to be the same, and no
byte above the budget held. What was found is kept, and stands in the performance page (`--print`:
it is printed only).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import skimp
from bench import page
from bench.budget_programs import PROGRAMS, Trained
from bench.budget_table import KEPT, table
from bench.engines import ROOT
from bench.machine import commit
from bench.results import load as load_results, newest
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp._kernels import scratch
from skimp.errors import OutOfMemoryError

SHARES: Final = (1.0, 0.7, 0.5, 0.3)
TURNS: Final = 5  # at most, however much time there is
STEPS: Final = 6  # in each turn, of which the first does not count: a budget learns from three
RESIDENT: Final = 0.5  # the share at which resident memory is measured
MIB: Final = 1 << 20


class Row(NamedTuple):
    """One program within one budget; no slowdown: an op needs more."""

    program: str
    spill: bool
    share: float
    budget: int
    slowdown: float | None = None
    slowdown_cpu: float | None = None
    held: int = 0
    evictions: int = 0  # of a step, as the next three
    rematerialized: int = 0
    read: int = 0
    searching: float = 0.0
    same: bool = True
    resident: float | None = None  # MiB above an idle process and the budget


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
    scratch.drop()
    skimp.manual_seed(0)
    before = host.allocated
    skimp.memory.reset_peak_memory_stats()
    trained = PROGRAMS[name](skimp)
    losses, seconds = steps(trained, count)
    peak = skimp.memory.max_memory_allocated() - before + scratch.kept()  # which counts in a budget
    return Plain(losses, seconds, peak, floor_of(trained))


class Trial:
    """A program within one budget, turn by turn."""

    def __init__(self, name: str, share: float, spill: bool) -> None:
        self.name, self.share, self.spill = name, share, spill
        self.best = self.fast = (float("inf"), float("inf"))  # with the budget, without
        self.fits = self.same = True
        self.turns = self.nbytes = self.held = 0
        self.evictions = self.rematerialized = self.read = 0
        self.searching = 0.0

    def turn(self, free: Plain) -> None:
        """The steps once more, unless an op needs more."""
        if not self.fits:
            return
        gc.collect()
        skimp.memory.empty_cache()
        skimp.manual_seed(0)
        counts.reset()
        self.nbytes = host.allocated + free.floor + int(self.share * (free.peak - free.floor))
        try:
            with skimp.memory.budget(self.nbytes, spill=self.spill):
                skimp.memory.reset_peak_memory_stats()
                losses, seconds = steps(PROGRAMS[self.name](skimp), STEPS)
        except OutOfMemoryError:
            self.fits = False
            return
        self.turns += 1
        self.best = _least(self.best, seconds)
        self.fast = _least(self.fast, free.seconds)
        self.same &= losses == free.losses
        held = max(host.peak, pool.most)
        if counts.beyond:  # a kernel's scratch memory: its op needs more
            self.fits = False
        if held > self.nbytes:  # this turn's: scratch memory, and so the peak, differs by turns
            raise AssertionError(f"{self.name}: {held} bytes held, {self.nbytes} allowed")
        self.held = held
        self.evictions += counts.evictions
        self.rematerialized += counts.rematerialized_bytes
        self.read += counts.was_read
        self.searching += counts.search_seconds

    def row(self) -> Row:
        """What was found, against the times without a budget."""
        head = (self.name, self.spill, self.share, self.nbytes)
        if not self.fits:
            return Row(*head)
        done = self.turns * STEPS
        return Row(
            *head, self.best[0] / self.fast[0], self.best[1] / self.fast[1], self.held,
            self.evictions // done, self.rematerialized // done, self.read // done,
            self.searching / (done * self.best[0]), self.same,
            resident(self) if self.share == RESIDENT else None,
        )  # fmt: skip


def measured(name: str, seconds: float) -> list[Row]:
    """All budgets of a program in turns, as many as there is time for, and one at least."""
    trials = [Trial(name, share, spill) for share in SHARES for spill in (False, True)]
    began = time.perf_counter()
    for turn in range(1, TURNS + 1):
        for trial in trials:
            trial.turn(plain(name, STEPS))
        if (time.perf_counter() - began) * (turn + 1) / turn > seconds:
            break
    return [trial.row() for trial in trials]


def resident(trial: Trial) -> float:
    """MiB by which a process of its own grows beyond an idle one and the budget."""
    words = ["--resident", trial.name, str(trial.nbytes), *["--no-spill"] * (not trial.spill)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.budget", *words], check=True, stdout=-1, cwd=ROOT
    )
    return float(done.stdout)


def grown(name: str, nbytes: int, spill: bool) -> float:
    """In that process: its highest resident memory above that before the program and the budget."""
    w = skimp.randn(2048, 2048, requires_grad=True)
    (w @ w).sum().backward()  # threads and what the libraries keep: BLAS 8 MiB, of large ones only,
    images = w.detach().reshape(64, 64, 32, 32)  # and oneDNN its code, 17
    skimp.nn.functional.conv2d(
        images, skimp.randn(64, 64, 3, 3, requires_grad=True)
    ).sum().backward()
    del w, images
    gc.collect()
    skimp.memory.empty_cache()
    before = _resident_peak(forget=True)
    with skimp.memory.budget(nbytes, spill=spill):
        steps(PROGRAMS[name](skimp), STEPS)
    return (_resident_peak() - before - nbytes) / MIB


def _resident_peak(forget: bool = False) -> int:
    """Bytes, the highest since it was forgotten; only Linux knows."""
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) << 10


def _least(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return min(a[0], b[0]), min(a[1], b[1])


def main() -> int:
    """Measure, print and keep; 1 if losses were others."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget", description=__doc__)
    parser.add_argument("--minutes", type=float, default=12.0, help="that all takes at most")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="names, as a regex")
    parser.add_argument("--print", action="store_true", help="print the table only")
    parser.add_argument("--resident", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--no-spill", action="store_true", help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.resident:
        name, nbytes = options.resident
        print(grown(name, int(nbytes), not options.no_spill))
        return 0
    load = os.getloadavg()[0]
    names = [name for name in PROGRAMS if options.only.search(name)]
    rows: list[Row] = []
    for name in names:
        rows += measured(name, 54 * options.minutes / len(names))  # processes of their own follow
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
