"""Random programs on skimp and on PyTorch, as many as you like: `make fuzz`, over night.

Prints its seed, which gives the same programs again, and each find as the steps that are left when
all that don't matter are taken out: they become a test in tests/engine/autograd.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import skimp
from tests.engine.test_twins import Twins
from tests.support.autograd_twin import Step, compare, program

BATCH = 500  # programs between two reports
MACHINES = 50  # examples of the state machine in a batch
KINDS: tuple[dict[str, Any], ...] = (
    {"dtypes": ("float64", "float32")},
    {"dtypes": ("float64", "complex128")},
    {"dtypes": ("float64", "float32"), "layouts": 0.25},
    {"dtypes": ("float64",), "length": 30},
)
# docs/differences.md: PyTorch loses the gradient
KNOWN = "no gradient can pass between a view and its base"


def shortest(steps: list[Step]) -> list[Step]:
    """The program without the steps that the find does not need."""
    at = len(steps) - 1
    while at >= 0:
        fewer = steps[:at] + steps[at + 1 :]
        if found_in(fewer) is not None:
            steps = fewer
        at -= 1
    return steps


def found_in(steps: list[Step]) -> str | None:
    """What the two engines disagree about; a crash of the comparison is a find too."""
    try:
        found = compare(skimp, torch, steps)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if found is not None and KNOWN in found else found


def programs(seed: int) -> Iterator[str]:
    """What is found among the programs of one batch."""
    for k in range(BATCH):
        number = seed * BATCH + k
        steps = program(number, **KINDS[k % len(KINDS)])
        mode = ("auto", "always", "never")[k // len(KINDS) % 3]
        with skimp.config.using(defer=mode):
            if found_in(steps) is not None:
                left = shortest(steps)
                yield f"program {number}, defer={mode}: {found_in(left)}\n    {left!r},"


def machines(seed: int) -> Iterator[str]:
    """What the state machine of views and writes finds."""
    tried = settings(
        max_examples=MACHINES,
        stateful_step_count=40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(Twins), settings=tried)
    except Exception:
        yield f"state machine, seed {seed}:\n{traceback.format_exc()}"


def batch(seed: int) -> list[str]:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [*programs(seed), *machines(seed)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="programs to run")
    parser.add_argument("--seed", type=int, default=None, help="of the first batch")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    asked = parser.parse_args()
    first = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    print(f"SEED={first}", flush=True)
    batches = -(-asked.count // BATCH)
    began, finds, reported = time.monotonic(), 0, 0.0
    with multiprocessing.get_context("spawn").Pool(asked.jobs) as pool:
        done = pool.imap_unordered(batch, range(first, first + batches))
        for number, found in enumerate(done, 1):
            for find in found:
                finds += 1
                print(find, flush=True)
            now = time.monotonic() - began
            if now - reported > 60 or number == batches:
                reported = now
                print(f"{number * BATCH} programs, {finds} finds, {now:.0f} s", flush=True)
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
