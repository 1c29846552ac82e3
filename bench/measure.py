"""An engine's side of the turns: does what it is told, a command on each line that it reads.

`python -m bench.measure torch` loads the engine, and forks a process for each workload, so that
none finds what another has left, and none has to load. It answers with a line of JSON to

- `prepare NAME`, which sets up, calls once for everything that is loaded or compiled once, and sets
  up again;
- `warm`, which begins to watch the memory, and makes the calls from which the length of a slice
  follows;
- `turn`, which runs a slice; `seconds` is one call's share;
- `end`, which tells `extra_mib`, the peak of resident memory since `warm`, above that before it,
  and `ledger_mib`, skimp's own figure for the same calls, of a program those of its first `ALIKE`
  steps; `cpu`, the share of the processors' time in the time of the calls; of programs also the
  first `losses`.

Where a command fails the answer is an `error`, and the workload is over.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from bench import process
from bench.byhand import BY_HAND, Arrays
from bench.catalogue import ALL, looped
from bench.clock import fitting, loop, timed, touch
from bench.engines import ENGINES, Engine, ended
from bench.micro import every_op
from bench.overhead import by_numpy, every_call
from bench.workloads import SMALL, Call, Kit, itself

Answer = dict[str, Any]
MIB = 2**20
SMALL_SLICE, SLICE = 0.01, 0.15  # seconds; a call that takes longer is a slice
MIXED = 500  # times, each small op before one of them is measured;
MIXED_MICRO = 30  # those of bench/micro.py, which are many
COMPARED = 6  # steps of a program, whose losses are compared between engines
# Steps of a program whose memory is compared, as many on each engine: an optimizer that remembers
# its steps (LBFGS) holds more where more of them are made in the same time.
ALIKE = 16
# Before a slice there are calls without a clock, one for so many in it, which fill the caches. Of
# large work they go on until a call takes at most twice as long as the fastest so far, or for a
# second: pages that were given to the system must come back, and a virtual machine may have given
# them on to its host. Touching them then takes 20 times as long (2.7 s per GiB, not 0.12).
FILLING = 8
SETTLED, PATIENCE = 2.0, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.measure", description=__doc__)
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes (for tests)")
    parser.add_argument("--threads", type=int, help="that an op may use; the engine's default")
    words = parser.parse_args()
    process.die_with_parent()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may print: not between answers
    commands = os.fdopen(sys.stdin.fileno(), "rb", buffering=0)  # forks read too: nothing ahead
    engine = ENGINES[words.engine]
    load(engine, words.threads)
    while first := commands.readline():
        if not os.fork():
            process.die_with_parent()
            for answer in answered(engine, words.shrink, chain([first], commands)):
                print(json.dumps(answer), file=answers, flush=True)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.wait()[1])
        if status:  # it was killed, or has crashed
            print(json.dumps({"error": ended(status, "")}), file=answers, flush=True)


def load(engine: Engine, threads: int | None = None) -> None:
    """Import what workloads use, here and not in each fork."""
    T = importlib.import_module(engine.module)
    if threads is not None:
        T.set_num_threads(threads)
    if engine.module == "torch":
        importlib.import_module("torch._dynamo")  # optimizers do when they are made: two seconds


def answered(engine: Engine, shrink: int, commands: Iterable[bytes]) -> Iterator[Answer]:
    """An answer for each command of a workload, up to `end` or the first that fails."""
    measured: Measured | None = None
    for line in commands:
        command, _, name = line.decode().strip().partition(" ")
        try:
            if measured is None:
                measured = Measured(engine, name, shrink)
                yield {}
            else:
                yield COMMANDS[command](measured)
        except Exception as error:
            yield {"error": f"{type(error).__name__}: {error}"[:200]}
            return
        if command == "end":
            return


class Measured:
    """A workload on an engine, from its set-up to its figures."""

    def __init__(self, engine: Engine, name: str, shrink: int) -> None:
        make = maker(engine, name, shrink)
        self.small = looped(name)
        self.skimp = engine.module == "skimp"
        self.losses: list[float] = []
        self.alike: Answer | None = None  # the memory of a program's first steps
        self.wall = self.cpu = 0.0  # of the slices, together
        if name.startswith("program/"):
            self.losses = first_losses(make(), COMPARED)
        elif name.startswith("micro/"):
            mix(all_small(engine), MIXED_MICRO)
        elif name in SMALL:
            mix([maker(engine, n, shrink)() for n in SMALL if n in engine.workloads], MIXED)
        else:
            touch(make()())
        self.call = make()

    def warm(self) -> Answer:
        if self.small:
            self.times = fitting(self.call, SMALL_SLICE)
        else:
            self.memory = Memory(self.skimp)
            timed(self.call)
            self.fastest = timed(self.call)
            if self.losses:
                timed(self.call, ALIKE - 2)
                self.alike = self.memory.found()
            self.times = max(int(SLICE / self.fastest), 1)
        return {}

    def turn(self) -> Answer:
        if self.small:
            loop(self.call, max(self.times // FILLING, 1))
            return {"seconds": loop(self.call, self.times) / self.times}
        self.materialize_pending()
        before = time.process_time()
        times = [timed(self.call) for _ in range(self.times)]
        self.cpu += time.process_time() - before
        self.wall += sum(times)
        self.fastest = min(self.fastest, *times)
        return {"seconds": statistics.median(times)}

    def materialize_pending(self) -> None:
        count = max(self.times // FILLING, 1)
        deadline = time.monotonic() + PATIENCE
        while timed(self.call, count) > SETTLED * self.fastest * count:
            if time.monotonic() > deadline:
                return

    def end(self) -> Answer:
        if self.small:
            return {}
        found = self.alike or self.memory.found()
        if self.wall:
            found["cpu"] = self.cpu / self.wall
        return {**found, "losses": self.losses} if self.losses else found


def first_losses(step: Call, count: int) -> list[float]:
    return [float(step().detach().double().mean()) for _ in range(count)]


def mix(calls: Sequence[Call], times: int) -> None:
    """Run small ops in turn, as programs do.

    CPython specialises code for what has gone through it: one that has seen a single op is faster.
    """
    for _ in range(times):
        for call in calls:
            call()


def all_small(engine: Engine) -> list[Call]:
    if engine.module == "numpy":
        return every_call()
    return every_op(importlib.import_module(engine.module))


COMMANDS = {"warm": Measured.warm, "turn": Measured.turn, "end": Measured.end}


def maker(engine: Engine, name: str, shrink: int) -> Callable[[], Call]:
    """What sets the workload up for the engine and returns the call."""
    if engine.module == "numpy":
        if name.startswith("micro/"):
            return lambda: by_numpy(name.removeprefix("micro/"))
        return lambda: BY_HAND[name](Arrays(shrink))
    T = importlib.import_module(engine.module)
    wrap = T.compile if engine.name == "torch.compile" else itself
    return lambda: ALL[name](Kit(T, wrap, shrink))


class Memory:
    """This process's memory from here on, and what skimp's ledger counts; its cache is emptied."""

    def __init__(self, skimp: bool) -> None:
        self.ledger = ledger() if skimp else None
        if self.ledger:
            gc.collect()
            self.ledger.empty_cache()
            self.ledger.reset_peak_memory_stats()
            self.counted = self.ledger.memory_allocated()
        process.restart_peak()
        self.before = process.resident()

    def found(self) -> Answer:
        most = process.peak()
        found = {}
        if self.before is not None and most is not None:
            found["extra_mib"] = (most - self.before) / MIB
        if self.ledger:
            found["ledger_mib"] = (self.ledger.max_memory_allocated() - self.counted) / MIB
        return found


def ledger() -> Any:
    from skimp import memory

    return memory


if __name__ == "__main__":
    main()
