"""Seconds of a call, inside one process: a single one, or many if it is too short to be timed."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.workloads import Call

LEAST, MOST = 3, 200  # timed calls in a row
LOOP, LOOPS = 0.04, 7  # seconds, count


def touch(result: Any) -> None:
    """Ask for the address, so that an engine that defers has computed."""
    if hasattr(result, "data_ptr"):
        result.data_ptr()


def timed(call: Call, times: int = 1) -> float:
    """Seconds of `times` calls, each with its result in memory."""
    start = time.perf_counter()
    for _ in range(times):
        touch(call())
    return time.perf_counter() - start


def loop(call: Call, times: int) -> float:
    """Seconds of `times` calls whose results nobody asks for."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def fitting(call: Call, seconds: float) -> int:
    """How many calls in a loop take about so long, found by running some."""
    times = 100
    while (took := loop(call, times)) < seconds / 4:
        times *= 2
    return max(int(times * seconds / took), 1)


def median_call(call: Call, seconds: float) -> float:
    """Seconds of one call, after two that warm up; the timed ones together take about `seconds`."""
    timed(call, 2)
    times: list[float] = []
    while len(times) < LEAST or (sum(times) < seconds and len(times) < MOST):
        times.append(timed(call))
    return statistics.median(times)


def median_small(call: Call) -> float:
    """Seconds of one call that is too short to be timed alone, from loops of many."""
    times = fitting(call, LOOP)
    return statistics.median(loop(call, times) / times for _ in range(LOOPS))
