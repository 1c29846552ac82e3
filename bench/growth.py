"""How cost grows: with the size of a tensor, the length of a graph, the number of threads.

`python -m bench.growth skimp size` (or `threads`, or `nodes=1000`) prints one line of JSON per
point: `curve`, `work`, `x`, and `seconds`, those of one call, or of one node of a graph; a graph
has `bytes` per node too.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench import process
from bench.catalogue import SHORT, SIZED, SIZES
from bench.clock import median_call, median_small, timed
from bench.engines import ENGINES
from bench.limits import cores
from bench.workloads import WORKLOADS, Kit

Point = dict[str, Any]
GROWN = ("skimp", "torch", "torch+thp")  # the engines whose growth is measured

CHARTED = ("add", "exp", "chain")
NODES = [10**n for n in range(1, 6)]
THREADED = ("add", "exp", "gelu_fwd", "softmax", "mm")


def by_size(T: Any, shrink: int) -> Iterator[Point]:
    """Seconds of one call on 1 to 10^8 elements."""
    for size in SIZES:
        if size > SIZES[-1] // shrink:
            return
        x = T.ones(size).mul_(0.5)
        for work in CHARTED:
            call = SIZED[work](T, x)
            seconds = median_small(call) if size <= SHORT else median_call(call, seconds=0.2)
            yield {"work": work, "x": size, "seconds": seconds}


def by_nodes(T: Any, shrink: int, nodes: int) -> Iterator[Point]:
    """Seconds and bytes per node of autograd graphs, which are chains of so many nodes.

    However long one is, the graphs have `most` nodes together, so that each point measures as much.
    A process measures one point: memory that Python has once had it keeps for its next objects.
    """
    most = max(NODES) // shrink
    if nodes > most:
        return
    for root in build(T, 10, 10):  # a rehearsal: what is loaded once belongs to no node
        root.backward()
    graphs: list[Any] = []
    process.restart_peak()
    before = process.resident()
    forward = timed(lambda: graphs.extend(build(T, nodes, most // nodes)))
    after = process.resident()
    backward = timed(lambda: [root.backward() for root in graphs])
    held = None if before is None or after is None else (after - before) / most
    yield {"work": "forward", "x": nodes, "seconds": forward / most, "bytes": held}
    yield {"work": "backward", "x": nodes, "seconds": backward / most}


def build(T: Any, nodes: int, count: int) -> list[Any]:
    """`count` chains of so many multiplications by a number, which keep nothing but the chain."""
    roots = []
    for _ in range(count):
        x = T.ones(()).requires_grad_()
        for _ in range(nodes):
            x = x * 1.0
        roots.append(x)
    return roots


def by_threads(T: Any, shrink: int) -> Iterator[Point]:
    """Seconds of one call on 1, 2, 4, ... threads, up to the number of cores."""
    powers = [2**n for n in range(cores().bit_length())]
    for work in THREADED:
        call = WORKLOADS[work](Kit(T, shrink=shrink))
        for threads in powers:
            T.set_num_threads(threads)
            yield {"work": work, "x": threads, "seconds": median_call(call, seconds=0.4)}


CURVES: dict[str, Callable[[Any, int], Iterator[Point]]] = {
    "size": by_size,
    "threads": by_threads,
    **{f"nodes={n}": partial(by_nodes, nodes=n) for n in NODES},
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("engine", choices=GROWN)
    parser.add_argument("curve", choices=list(CURVES))
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes (for tests)")
    words = parser.parse_args()
    T = importlib.import_module(ENGINES[words.engine].module)
    for point in CURVES[words.curve](T, words.shrink):
        print(json.dumps({"curve": words.curve.partition("=")[0], **point}), flush=True)


if __name__ == "__main__":
    main()
