"""Inside a process of one engine: set up, warm up, time, and watch the memory.

`python -m bench.measure torch relu us_add` prints one line of JSON per workload. `seconds` is the
median of one call. `extra_mib` is the peak of resident memory over its calls, above that after the
set-up. `ledger_mib` is skimp's own figure for the same calls.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench import process
from bench.byhand import BY_HAND, Arrays
from bench.engines import ENGINES, Engine
from bench.workloads import SMALL, WORKLOADS, Call, Kit, itself

Found = dict[str, Any]
MIB = 2**20
SECONDS = 0.7  # that the timed calls of one workload may take,
LEAST, MOST = 3, 200  # and how many they are
SMALL_LOOP, SMALL_LOOPS = 0.04, 7  # seconds, count


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.measure", description=__doc__)
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("workloads", nargs="+", choices=list(WORKLOADS), metavar="workload")
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes (for tests)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the timed calls")
    words = parser.parse_args()
    engine = ENGINES[words.engine]
    for name in words.workloads:
        found = told(engine, name, words.shrink, words.seconds)
        print(json.dumps({"workload": name, **found}), flush=True)


def told(engine: Engine, name: str, shrink: int, seconds: float) -> Found:
    """What was measured, or the error: one workload that fails does not end the others."""
    try:
        make = maker(engine, name, shrink)
        return measured_small(make) if name in SMALL else measured_large(make, engine, seconds)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def maker(engine: Engine, name: str, shrink: int) -> Callable[[], Call]:
    """What sets the workload up for the engine and returns the call."""
    if engine.module == "numpy":
        return lambda: BY_HAND[name](Arrays(shrink))
    T = importlib.import_module(engine.module)
    wrap = T.compile if engine.name == "torch.compile" else itself
    return lambda: WORKLOADS[name](Kit(T, wrap, shrink))


# -- time -----------------------------------------------------------------------------------------


def touch(result: Any) -> None:
    """Ask for the address, so that an engine that defers has computed."""
    if hasattr(result, "data_ptr"):
        result.data_ptr()


def timed(call: Call) -> float:
    start = time.perf_counter()
    touch(call())
    return time.perf_counter() - start


def median_call(call: Call, seconds: float = SECONDS) -> float:
    """Seconds of one call, after two that warm up."""
    timed(call)
    timed(call)
    times: list[float] = []
    while len(times) < LEAST or (sum(times) < seconds and len(times) < MOST):
        times.append(timed(call))
    return statistics.median(times)


def loop(call: Call, times: int) -> float:
    """Seconds of `times` calls whose results nobody asks for."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def median_small(call: Call) -> float:
    """Seconds of one call that is too short to be timed alone, from loops of many."""
    times = 100
    while (took := loop(call, times)) < SMALL_LOOP / 4:
        times *= 2
    times = max(int(times * SMALL_LOOP / took), 1)
    return statistics.median(loop(call, times) / times for _ in range(SMALL_LOOPS))


def measured_small(make: Callable[[], Call]) -> Found:
    return {"seconds": median_small(make())}


# -- memory ---------------------------------------------------------------------------------------


def measured_large(make: Callable[[], Call], engine: Engine, seconds: float) -> Found:
    """Time and memory, after a rehearsal: what is loaded or compiled once belongs to no call."""
    touch(make()())
    call = make()
    found: Found = {}
    with ledger(found) if engine.module == "skimp" else nothing():
        process.restart_peak()
        before = process.resident()
        found["seconds"] = median_call(call, seconds)
        most = process.peak()
    if before is not None and most is not None:
        found["extra_mib"] = (most - before) / MIB
    return found


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def ledger(found: Found) -> Iterator[None]:
    """Put what skimp's ledger counted in between into `found`; start with an empty cache."""
    import gc

    from skimp import memory

    gc.collect()
    memory.empty_cache()
    memory.reset_peak_memory_stats()
    before = memory.memory_allocated()
    yield
    found["ledger_mib"] = (memory.max_memory_allocated() - before) / MIB


if __name__ == "__main__":
    main()
