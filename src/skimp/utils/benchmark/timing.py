"""Timer: a statement run often enough, on a number of threads, with pending work finished."""

from __future__ import annotations

import enum
import sys
import textwrap
import time
import timeit
from collections.abc import Callable
from typing import Any, NoReturn

from skimp._engine.memory.ledger import materialize_pending
from skimp._kernels.blas import get_num_threads, set_num_threads
from skimp.utils.benchmark.measurement import Measurement, TaskSpec

Callback = Callable[[int, float], Any] | None


def timer() -> float:
    """Seconds of a clock, once all pending work is done."""
    materialize_pending()
    return time.perf_counter()


class Language(enum.Enum):
    """What a statement is written in; C++ is refused."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Times a statement, a string as in `timeit`.

    `globals` are the names that it sees. Results that are deferred are computed before the clock is
    read. `num_threads`: the threads that ops may use meanwhile.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError("skimp compiles no C++: the statement must be Python")
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip() or "pass"
        space = {"torch": sys.modules["skimp"], **(globals or {})}
        if global_setup:
            exec(global_setup, space)
        self._spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )
        self._timer = timeit.Timer(stmt, setup, timer, space)

    def _time(self, number: int) -> float:
        before = get_num_threads()
        set_num_threads(self._spec.num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of `number` runs."""
        self._time(max(number // 100, 2))  # to warm up
        return Measurement(number, [self._time(number)], self._spec)

    def autorange(self, callback: Callback = None) -> NoReturn:
        """PyTorch refuses it as well."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """PyTorch refuses it as well."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block(self, min_run_time: float) -> int:
        """Runs in a measurement, so that reading the clock takes at most a thousandth of it."""
        overhead = sorted([self._overhead() for _ in range(5)])[2]
        number = 1
        while True:
            taken = self._time(number)
            enough = taken >= min(min_run_time / 1000, 0.1) or taken >= min_run_time
            if overhead / taken <= 1e-3 and enough:
                return number
            if taken > min_run_time:
                return number
            number *= 10

    @staticmethod
    def _overhead() -> float:
        start = timer()
        return timer() - start

    def blocked_autorange(
        self, callback: Callback = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measurements until they took `min_run_time` seconds together."""
        number = self._block(min_run_time)

        def enough(times: list[float]) -> bool:
            return sum(times) >= min_run_time

        return self._until(enough, number, callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callback = None,
    ) -> Measurement:
        """Measurements until their quartiles are within `threshold` of the median, or
        `max_run_time` is over.
        """
        number = self._block(0.05)

        def enough(times: list[float]) -> bool:
            taken = sum(times)
            if taken > max_run_time:
                return True
            steady = Measurement(number, times, self._spec).meets_confidence(threshold)
            return len(times) >= 4 and taken > min_run_time and steady

        return self._until(enough, number, callback)

    def _until(
        self, enough: Callable[[list[float]], bool], number: int, callback: Callback
    ) -> Measurement:
        times: list[float] = []
        while not (times and enough(times)):
            times.append(self._time(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._spec)

    def collect_callgrind(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: no instructions are counted."""
        raise RuntimeError(
            "Timer.collect_callgrind: skimp counts no instructions; use blocked_autorange"
        )
