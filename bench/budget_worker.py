"""A program's side of the turns, without a budget or within one: a step on each line that it reads.

`python -m bench.budget_worker NAME [--budget BYTES] [--no-spill]` sets the program up, and answers
with a line of JSON to

- `step`: the loss, and the seconds by the wall and by the processor;
- `end`: what was held, and what the budget did, of all steps so far (`Facts`).

An answer is `refused` where an op needs more than the budget; then the program is over.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
import time
from typing import Any, NamedTuple

import skimp
from bench import process
from bench.budget_programs import PROGRAMS, Trained
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp._kernels import scratch
from skimp.errors import OutOfMemoryError


class Facts(NamedTuple):
    """What a program held and did up to now, in bytes but for `evictions` and `searching`."""

    peak: int  # of tensors, and of scratch memory, which counts within a budget
    floor: int  # of parameters, gradients and the optimizer's state
    held: int  # within a budget, with what rounding and caching add
    resident: int  # above a process that has run the program and let go of it
    evictions: int
    rematerialized: int
    read: int
    searching: float  # seconds
    beyond: int  # scratch memory above the budget


def floor_of(trained: Trained) -> int:
    """Bytes of parameters, their gradients and the optimizer's state."""
    states = [s for o in trained.optimizers for s in o.state.values()]
    tensors = [t for s in states for t in s.values() if isinstance(t, skimp.Tensor)]
    own: int = sum([p.numel() * p.element_size() for p in trained.parameters])
    state: int = sum([t.numel() * t.element_size() for t in tensors])
    return 2 * own + state


class Running:
    """The program, set up within a budget that begins before it."""

    def __init__(self, name: str) -> None:
        self._before = process.resident() or 0
        self._there = host.allocated
        skimp.manual_seed(0)
        counts.reset()
        skimp.memory.reset_peak_memory_stats()
        self.trained = PROGRAMS[name](skimp)

    def step(self) -> tuple[float, float, float]:
        """The loss, and the seconds by the wall and by the processor."""
        began, worked = time.perf_counter(), time.process_time()
        loss = self.trained.step()
        return loss, time.perf_counter() - began, time.process_time() - worked

    def facts(self) -> Facts:
        peak = skimp.memory.max_memory_allocated() - self._there
        return Facts(
            peak + scratch.kept(), floor_of(self.trained),
            max(host.peak, pool.most), (process.peak() or 0) - self._before,
            counts.evictions, counts.rematerialized_bytes, counts.was_read,
            counts.search_seconds, counts.beyond,
        )  # fmt: skip


def load_libraries(name: str) -> None:
    """Have threads and libraries take what they keep for a program, such as oneDNN's code for each
    shape, by a step of it without a budget: 20 MiB of a DenseNet. Resident memory counts from here.
    """
    PROGRAMS[name](skimp).step()
    gc.collect()
    scratch.drop()
    skimp.memory.empty_cache()
    process.restart_peak()


def main() -> None:
    """Answer line by line, until there is `end`."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget_worker", description=__doc__)
    parser.add_argument("name", choices=list(PROGRAMS))
    parser.add_argument("--budget", type=int, help="bytes; none otherwise")
    parser.add_argument("--no-spill", action="store_true", help="make again, but write no file")
    words = parser.parse_args()
    process.die_with_parent()
    load_libraries(words.name)
    within: Any = contextlib.nullcontext()
    if words.budget is not None:
        within = skimp.memory.budget(words.budget, spill=not words.no_spill)
    try:
        with within:
            answer(words.name)
    except OutOfMemoryError:
        say({"refused": True})


def answer(name: str) -> None:
    running = Running(name)
    for line in sys.stdin:
        if line.strip() == "step":
            say({"step": running.step()})
        else:
            say(running.facts()._asdict())
            return


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
