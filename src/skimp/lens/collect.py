"""The observer that a report is made from: it listens to a ledger and keeps totals by line."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from operator import sub

from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import Ledger
from skimp.lens.data import Copied, Held, Peak, Place, Report
from skimp.lens.live import Live

BATCH = 4096  # events that wait at most: the work per event stays small, and so does the queue

_Event = tuple[int, int, Site | None, float]  # owner, bytes, and where and when; nowhere: freed
_Copy = tuple[Site, str, str]  # place, op, reason


class Collector:
    """Counts a ledger's events by place, exactly, the moment of the peak included.

    An event is queued in one atomic step and counted later: a storage may die inside of any other
    event (the garbage collector decides) and on any thread, and each event has to count whole.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.perf_counter) -> None:
        self._ledger = ledger
        self._before = _counters(ledger)
        self._clock = clock
        self._start = clock()
        self._events: deque[_Event] = deque()
        self._counting = threading.Lock()
        self._live = Live(ledger.allocated, ledger.made - ledger.dropped)
        self._copies: dict[_Copy, tuple[int, int]] = {}
        self._copy_events: deque[tuple[_Copy, int]] = deque()

    # -- the ledger calls these -------------------------------------------------------------------

    def allocated(self, owner: int, nbytes: int, site: Site) -> None:
        self._events.append((owner, nbytes, site, self._clock()))
        if len(self._events) >= BATCH:
            self._count()

    def freed(self, owner: int, nbytes: int) -> None:
        self._events.append((owner, nbytes, None, 0.0))
        if len(self._events) >= BATCH:
            self._count()

    def copied(self, nbytes: int, op: str, reason: str, site: Site) -> None:
        self._copy_events.append(((site, op, reason), nbytes))
        if len(self._copy_events) >= BATCH:
            self._count()

    # -- counting ---------------------------------------------------------------------------------

    def _count(self) -> None:
        """Take what is queued into the totals, unless somebody (perhaps this thread) is at it."""
        if not self._counting.acquire(blocking=False):
            return
        try:
            while self._events:
                owner, nbytes, site, when = self._events.popleft()
                if site is None:
                    self._live.remove(owner, nbytes)
                else:
                    self._live.add(owner, nbytes, site, when - self._start)
            while self._copy_events:
                copy, nbytes = self._copy_events.popleft()
                total, times = self._copies.get(copy, (0, 0))
                self._copies[copy] = (total + nbytes, times + 1)
        finally:
            self._counting.release()

    # -- the result -------------------------------------------------------------------------------

    def report(self, program: str) -> Report:
        """Everything from the beginning until now."""
        self._count()
        live = self._live
        made, allocated, unwritten = map(sub, _counters(self._ledger), self._before)
        return Report(
            program=program,
            seconds=self._clock() - self._start,
            peak=Peak(live.peak, live.peak_time, _place(live.peak_site), self._held()),
            allocations=made,
            allocated=allocated,
            live=live.total,
            unwritten=unwritten,
            copies=self._copied(),
        )

    def _held(self) -> tuple[Held, ...]:
        held = (Held(_place(site), *totals) for site, *totals in self._live.at_peak())
        return tuple(sorted(held, key=lambda h: (-h.bytes, h.place.file, h.place.line, h.place.op)))

    def _copied(self) -> tuple[Copied, ...]:
        copies = (
            Copied(_place(site, op), reason, nbytes, times)
            for (site, op, reason), (nbytes, times) in self._copies.items()
        )
        return tuple(sorted(copies, key=lambda c: (-c.bytes, c.place.file, c.place.line, c.reason)))


def _counters(ledger: Ledger) -> tuple[int, int, int]:
    """Those that only grow."""
    return ledger.made, ledger.total, ledger.unwritten


def _place(site: Site, op: str | None = None) -> Place:
    return Place(site.filename, site.lineno, op or site.op)
