"""What a part of a program does to memory: `with region("step") as r`, then `r.peak`."""

from __future__ import annotations

import time
from types import TracebackType
from typing import NamedTuple

from skimp._engine.memory.ledger import Gauge, Ledger, count_pending, host, materialize_pending
from skimp._engine.memory.sizes import readable


class _Reading(NamedTuple):
    """The ledger's sums at one moment."""

    total: int
    freed: int
    made: int
    copied: int
    unwritten: int
    seconds: float


class Region:
    """Figures of what happened between entry and exit (or until now), in bytes, on all threads.

    What was deferred before is materialized at entry, if there is room, and what was deferred
    inside at exit; an exception leaves deferred expressions deferred. Regions may nest and overlap,
    and none disturbs another's peak.
    """

    def __init__(self, name: str = "", ledger: Ledger = host) -> None:
        self.name = name
        self._ledger = ledger
        self._start: _Reading | None = None
        self._end: _Reading | None = None
        self._gauge: Gauge | None = None

    def __enter__(self) -> Region:
        count_pending()
        self._gauge = self._ledger.open_gauge()
        self._end = None
        self._start = self._read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._gauge is not None
        try:
            if kind is None:
                materialize_pending()
        finally:
            self._end = self._read()
            self._ledger.close_gauge(self._gauge)

    @property
    def peak(self) -> int:
        """The most bytes that were allocated at once, what was there at entry included."""
        self._both()
        assert self._gauge is not None
        return self._gauge.peak

    @property
    def extra(self) -> int:
        """How far the peak was above what was allocated at entry."""
        start, _ = self._both()
        return self.peak - (start.total - start.freed)

    @property
    def allocated(self) -> int:
        """The sum of all allocations."""
        start, end = self._both()
        return end.total - start.total

    @property
    def allocations(self) -> int:
        """How many they were."""
        start, end = self._both()
        return end.made - start.made

    @property
    def freed(self) -> int:
        """The sum of all frees, of what was there at entry too."""
        start, end = self._both()
        return end.freed - start.freed

    @property
    def kept(self) -> int:
        """What more was allocated at exit than at entry; less than zero if it was less."""
        return self.allocated - self.freed

    @property
    def copied(self) -> int:
        """Bytes that ops copied from one storage to another."""
        start, end = self._both()
        return end.copied - start.copied

    @property
    def unwritten(self) -> int:
        """Bytes of results that were deferred and never had to be written."""
        start, end = self._both()
        return end.unwritten - start.unwritten

    @property
    def seconds(self) -> float:
        start, end = self._both()
        return end.seconds - start.seconds

    def __str__(self) -> str:
        return (
            f"{self.name or 'region'}: peak {readable(self.peak)} ({readable(self.extra)} extra), "
            f"allocated {readable(self.allocated)}, kept {readable(self.kept)}, "
            f"copied {readable(self.copied)}, {self.seconds:.3f} s"
        )

    def __repr__(self) -> str:
        return str(self) if self._end is not None else object.__repr__(self)

    def _both(self) -> tuple[_Reading, _Reading]:
        if self._start is None:
            raise RuntimeError(f"region {self.name!r} has no figures yet: enter it with `with`")
        if self._end is not None:
            return self._start, self._end
        count_pending()
        return self._start, self._read()

    def _read(self) -> _Reading:
        x = self._ledger
        return _Reading(x.total, x.freed, x.made, x.copied, x.unwritten, time.perf_counter())


def region(name: str = "") -> Region:
    """Measure what happens inside a `with`."""
    return Region(name)
