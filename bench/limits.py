"""What the machine's memory can do, on all cores: the floor below which no engine can go.

`python -m bench.limits` prints one line of JSON, in bytes read and written per second. `copy` is a
NumPy copy of 400 MB into a warm buffer, `update` a read, an addition and a write in place.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from bench.clock import median_call
from bench.workloads import SIDE, Call

# How many arrays of SIDE x SIDE float32 a workload reads and writes, and what it is held against.
TRAFFIC: dict[str, tuple[int, str]] = {
    "relu": (2, "copy"), "exp": (2, "copy"), "clone": (2, "copy"), "add": (3, "copy"),
    "relu_": (2, "update"), "add_": (3, "update"), "add_out": (3, "update"),
}  # fmt: skip
SECONDS = 0.7  # for the timed calls of each
SHARE = 0.75  # of these bandwidths is what pointwise work must reach


def traffic(workload: str, shrink: int = 1) -> int:
    """Bytes that one call of the workload must read and write."""
    return TRAFFIC[workload][0] * (SIDE // shrink) ** 2 * 4


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def together(pool: ThreadPoolExecutor, pieces: Sequence[Call]) -> None:
    for done in [pool.submit(piece) for piece in pieces]:
        done.result()


def bandwidths(shrink: int = 1) -> dict[str, float]:
    count = cores()
    source = np.ones((SIDE // shrink) ** 2, np.float32)
    target = np.zeros_like(source)
    target.fill(0)  # its pages are there before the first copy
    parts = list(zip(np.array_split(source, count), np.array_split(target, count), strict=True))
    copy = [partial(np.copyto, to, part) for part, to in parts]
    update = [partial(np.add, to, 1, out=to) for _, to in parts]
    moved = source.nbytes * 2
    with ThreadPoolExecutor(count) as pool:
        return {
            "copy": moved / median_call(lambda: together(pool, copy), SECONDS),
            "update": moved / median_call(lambda: together(pool, update), SECONDS),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__)
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes (for tests)")
    print(json.dumps(bandwidths(parser.parse_args().shrink)), flush=True)


if __name__ == "__main__":
    main()
