"""The ledger: what is allocated, counted exactly, and who is told.

Every allocation and every free passes here, so the path of a small op updates the counters itself:

    host.made = host.made + 1
    host.total = total = host.total + nbytes
    owner.nbytes = nbytes
    if total - host.freed > host.ceiling:
        host.rise(nbytes, owner)

and on the owner's death

    host.dropped = host.dropped + 1
    host.freed = host.freed + nbytes
    if host.watched:
        host.fell(id(owner), nbytes)

CPython (3.11 to 3.15, with its lock) changes threads, collects garbage and runs signal handlers
only where a function begins, where a call returns and where a loop jumps back. Reading, adding and
storing an attribute of this class has none of these, so each statement above is one step for all
other threads, without a lock. The same holds wherever a comment below says "one step".

What is counted for an owner is in its `nbytes` (-1: nothing), and both change in one step. So an
exception that a signal handler raises, wherever it comes, leaves them in agreement: what was
counted goes with its owner.

`allocated` is what owners asked for. What their memory comes from may take more from the system
(`Backing`): that is reserved, and a limit bounds it too.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory import call_site
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.refusal import out_of_memory
from skimp.errors import Live, OutOfMemoryError

NO_LIMIT: Final = sys.maxsize
SMALL: Final = 1 << 18  # bytes below which memory is NumPy's: no pool repays itself
KEPT: Final = 1 << 19  # bytes below which a result's tensor keeps NumPy's array: the fast paths
LISTENING: Final = -1  # the ceiling that every allocation is above


class Observer(Protocol):
    """Is told of every event, on its thread; a free may happen inside of any other event, and
    `freed` begins without a moment for signal handlers (`enters_uninterrupted`).
    """

    def allocated(self, owner: int, nbytes: int, site: Site) -> object: ...
    def freed(self, owner: int, nbytes: int) -> None: ...
    def copied(
        self, nbytes: int, op: str, reason: str, site: Site, source: Any, forced: bool
    ) -> None: ...


class Owner(Protocol):
    """Who has bytes: a storage."""

    nbytes: int


class Backing(Protocol):
    """Where owners' bytes come from: it may hold more than they asked for."""

    @property
    def rounding(self) -> int:
        """Bytes of blocks in use that nobody asked for."""

    @property
    def overhead(self) -> int:
        """Bytes that are held and that nobody asked for: rounding, and what is cached."""

    def shrink(self) -> None:
        """Give cached bytes back until what is reserved is within the ledger's bound."""


class Budget(Protocol):
    """Who takes bytes away from storages that can have them back (_engine/budget)."""

    @property
    def kept_below(self) -> int:
        """Bytes of a result whose tensor keeps an ndarray, which pins them."""

    @property
    def nbytes(self) -> int:
        """That may be reserved at once."""

    def regain(self, owner: Any) -> None:
        """Know an owner that has bytes again, which somebody else had allocated."""

    def receive(self, nbytes: int, owner: Any) -> object:
        """Know an owner whose bytes are about to be charged. What is returned is to be kept until
        there is room for them.
        """

    def computes(self, owner: Any) -> object:
        """Know an expression that is about to be computed. What is returned is to be kept until it
        is, and no longer.
        """

    def made_again(self, owner: Any, expr: Any) -> None:
        """Know bytes that stood for a result, which is gone, and the expression that they are."""

    def quick(self, row: Any, args: Any, params: Any) -> Any:
        """A pointwise row on small tensors that lend their arrays; None: not for these."""

    def between_ops(self) -> None:
        """Backward begins: no op of this thread is under way."""

    def after_backward(self) -> None:
        """Backward has ended."""

    def explain(self, nbytes: int) -> str:
        """Why so many bytes can't be had within the budget."""

    def deferring(self, owner: Any) -> None:
        """Know a new expression, which materializes now if it reads too much to wait."""

    def make_room(self, nbytes: int) -> bool:
        """Take bytes away until so many fit below the bound; whether they do."""


class Gauge:
    """Remembers the most bytes that were allocated at once while it was open."""

    __slots__ = ("_ledger", "_peak")

    def __init__(self, ledger: Ledger, peak: int) -> None:
        self._ledger = ledger
        self._peak = peak

    @property
    def peak(self) -> int:
        self._ledger.fold()
        return self._peak


class Ledger:
    """The counters of one device: bytes, but for made, most_made, dropped, copies and ooms."""

    __slots__ = (
        "_bound", "_gauges", "_high", "_limit", "_lock", "_observers", "_overall", "_relieving",
        "_unfolded", "adviser", "backing", "bounded", "budget", "ceiling", "coming", "copied",
        "copies", "device", "dropped", "fell", "freed", "kept_below", "live_by_line", "made",
        "most_made", "ooms", "relievers", "slack", "told", "total", "undivert", "unwritten",
        "watched",
    )  # fmt: skip

    def __init__(self, device: str) -> None:
        self.device: Final = device
        self.made = 0  # allocations
        self.dropped = 0  # frees
        # the most allocations at once, seen at new peaks of bytes: at least so many
        self.most_made = 0
        self.total = 0  # ever allocated
        self.freed = 0  # ever freed
        self.copied = 0  # ever copied from one storage to another, as ops tell it
        self.copies = 0  # how often
        self.unwritten = 0  # of deferred expressions that nobody had materialized
        self.ooms = 0  # refusals
        self.coming = 0  # bytes that the running op is about to ask for, beside what it asks for
        self.ceiling = 0  # an allocation that rises above it has to call `rise`
        self.watched = False  # somebody observes
        self.backing: Backing | None = None
        # What may free memory when a limit would be broken, tried in order until there is room.
        self.relievers: list[Callable[[], Any]] = [gc.collect]
        # Who knows what is live, for the message of a refusal.
        self.live_by_line: Callable[[], list[Live]] | None = None
        # Who knows what would free so many bytes, for the same message.
        self.adviser: Callable[[int], str] | None = None
        self.budget: Budget | None = None  # set by `spend`
        self.bounded = False  # there is a budget or a limit
        self.kept_below = KEPT  # bytes of a result whose tensor keeps the ndarray, which pins them
        self._limit = NO_LIMIT
        self._bound = NO_LIMIT  # the lower one of limit and budget
        # what may be allocated: the bound, less what the backing holds beyond that, or a bit more
        self.slack = NO_LIMIT
        self._high = 0  # the most allocated since the gauges were last brought up to date
        self._unfolded = 0  # the same for times before, if bringing them up to date was interrupted
        self._overall = Gauge(self, 0)
        self._gauges: tuple[Gauge, ...] = (self._overall,)
        self._observers: tuple[Observer, ...] = ()
        self.fell: Callable[[int, int], None] = self._tell_freed  # tells of a counted free
        self.told: Callable[[int, Any], None] = self.tell_allocated  # and of an allocation
        self.undivert: Callable[[], object] | None = None  # called before others observe
        # of whoever changes gauges and observers; counters need none
        self._lock = threading.RLock()
        self._relieving = threading.local()

    @property
    def allocated(self) -> int:
        """Bytes allocated now."""
        return self.total - self.freed

    @property
    def peak(self) -> int:
        """The most bytes that were allocated at once since the beginning or `reset_peak`."""
        return self._overall.peak

    # -- events -----------------------------------------------------------------------------------

    def charge(self, nbytes: int, owner: Owner) -> None:
        """Count an allocation. OutOfMemoryError: it breaks the limit, and nothing was counted."""
        self.made = self.made + 1
        self.total = total = self.total + nbytes
        owner.nbytes = nbytes
        if total - self.freed > self.ceiling:
            self.rise(nbytes, owner)

    def admit(self, nbytes: int, owner: object) -> None:
        """Make room for a large block, which is charged when it has succeeded: a peak counts no
        failure. OutOfMemoryError: there is none.
        """
        if self.budget is not None:
            self.budget.receive(nbytes, owner)
        wanted, backing = self.total - self.freed + nbytes, self.backing
        if wanted <= self.slack:  # with all that is cached
            return
        if backing is not None and wanted + backing.rounding <= self._bound:  # `fits`, written out
            return
        while not self.fits(nbytes):  # again, where another thread has taken the room
            if not self.relieve(nbytes):
                raise self.refusal(nbytes, owner, self.bound)

    def refund(self, owner: Owner) -> None:
        """Count a free of what is counted for an owner, who lives on with nothing."""
        nbytes = owner.nbytes
        if nbytes < 0:
            return
        owner.nbytes = -1
        self.dropped = self.dropped + 1
        self.freed = self.freed + nbytes
        if self.watched:
            self.fell(id(owner), nbytes)

    def counted_twice(self, nbytes: int, owner: object) -> None:
        """Count a free of what was counted for an owner that has as much already, and keeps it."""
        self.dropped = self.dropped + 1
        self.freed = self.freed + nbytes
        if self.watched:
            self.fell(id(owner), nbytes)

    def handed(self, nbytes: int, old_owner_id: int, owner: object) -> None:
        """A result took the block of what it read: nothing was allocated or freed.

        Observers, who keep bytes by owner, see a free and an allocation.
        """
        if self.watched:
            self.fell(old_owner_id, nbytes)
            self.told(nbytes, owner)

    def rise(self, nbytes: int, owner: Owner) -> None:
        """What remains to do for an allocation that was counted and is above the ceiling.

        OutOfMemoryError: it breaks the limit, and is not counted any more.
        """
        if self._bound != NO_LIMIT:
            self._hold_limit(nbytes, owner)
        live = self.total - self.freed
        if live > self._high:  # one step with the line above
            self._high = live
            living = self.made - self.dropped
            if living > self.most_made:
                self.most_made = living
        if not self.watched:
            self.aim()
            return
        self.told(nbytes, owner)

    @enters_uninterrupted
    def _tell_freed(self, owner_id: int, nbytes: int) -> None:
        for observer in self._observers:
            observer.freed(owner_id, nbytes)

    def copy(self, nbytes: int, op: str, reason: str, source: Any = None) -> None:
        """Count a copy from one storage to another."""
        self.copies = self.copies + 1
        self.copied = self.copied + nbytes
        if self.watched:
            self.tell_copied(nbytes, op, reason, source, True)

    def tell_copied(self, nbytes: int, op: str, reason: str, source: Any, forced: bool) -> None:
        """Tell the observers of a copy; one that was not `forced` is counted nowhere."""
        site = call_site.find()
        for observer in self._observers:
            observer.copied(nbytes, op, reason, site, source, forced)

    def tell_allocated(self, nbytes: int, owner: object) -> None:
        site = getattr(owner, "site", None) or (call_site.finder or call_site.find)()
        for observer in self._observers:
            observer.allocated(id(owner), nbytes, site)

    # -- observers --------------------------------------------------------------------------------

    def watch(self, observer: Observer) -> None:
        """Tell `observer` of every event from now on."""
        with self._lock:
            self._observe((*self._observers, observer))

    def unwatch(self, observer: Observer) -> None:
        """Tell it no longer; nothing happens if it was not told."""
        with self._lock:
            self._observe(tuple(one for one in self._observers if one is not observer))

    def divert(
        self,
        told: Callable[[int, Any], None],
        fell: Callable[[int, int], None],
        undivert: Callable[[], object],
    ) -> bool:
        """Have the only observer be told by two functions of its own, until it sets `told` and
        `fell` back; `undivert` has it do so. False: there are others, or a budget.
        """
        with self._lock:
            if len(self._observers) != 1 or self.budget is not None:
                return False
            self.undivert, self.told, self.fell = undivert, told, fell
            return True

    def _observe(self, observers: tuple[Observer, ...]) -> None:
        if self.undivert is not None:
            self.undivert()
            self.undivert = None
        self._observers = observers
        # one needs no loop over all, and a free comes with each allocation
        self.fell = observers[0].freed if len(observers) == 1 else self._tell_freed
        self.told = self.tell_allocated
        self.watched = bool(observers)
        self.aim()

    # -- peaks ------------------------------------------------------------------------------------

    def open_gauge(self) -> Gauge:
        """A peak of its own, from now until `close_gauge`; any number may be open, in any order."""
        with self._lock:
            self.fold()
            gauge = Gauge(self, self.allocated)
            self._gauges = (*self._gauges, gauge)
            return gauge

    def close_gauge(self, gauge: Gauge) -> None:
        with self._lock:
            self.fold()
            self._gauges = tuple(one for one in self._gauges if one is not gauge)

    def reset_peak(self) -> None:
        """The peak is what is allocated now. Open gauges keep theirs."""
        with self._lock:
            self.fold()
            self._overall._peak = self.allocated
            self.most_made = self.made - self.dropped

    def fold(self) -> None:
        """Bring the gauges up to date, and measure from here on."""
        with self._lock:
            self.ceiling = LISTENING  # other threads look at `_high` until it is set again
            high = self._high
            if high > self._unfolded:
                self._unfolded = high
            self._high = self.total - self.freed  # one step with the lines above
            for gauge in self._gauges:
                gauge._peak = max(gauge._peak, self._unfolded)
            self._unfolded = 0
            self.aim()

    def aim(self) -> None:
        """The ceiling: the lowest number of bytes that somebody wants to know of. One step."""
        high, slack = self._high, self.slack
        if self.watched or (self._limit != NO_LIMIT and self.backing is not None):
            self.ceiling = LISTENING
        else:
            self.ceiling = high if high < slack else slack

    # -- the limit --------------------------------------------------------------------------------

    @property
    def limit(self) -> int | None:
        """The most bytes that may be reserved at once; None: as many as the system gives."""
        return None if self._limit == NO_LIMIT else self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        self._limit = NO_LIMIT if limit is None else limit
        self._bind()

    @property
    def bound(self) -> int | None:
        """The lower one of the limit and the budget, if there is any."""
        return None if self._bound == NO_LIMIT else self._bound

    def spend(self, budget: Budget | None) -> None:
        """Obey a budget from now on, or none."""
        self.budget = budget
        self.kept_below = KEPT if budget is None else budget.kept_below
        self._bind()

    def _bind(self) -> None:
        budget = NO_LIMIT if self.budget is None else self.budget.nbytes
        self._bound = min(self._limit, budget)
        self.bounded = self.budget is not None or self._limit != NO_LIMIT
        self.slack = self._bound
        self.look()

    def look(self) -> None:
        """See what the backing holds beyond what was asked for: a ceiling has to be lower by it."""
        if self._bound != NO_LIMIT and self.backing is not None:
            overhead = self.backing.overhead
            self.slack = self._bound - overhead  # another thread may have set the bound meanwhile
        self.aim()

    def refusal(
        self, nbytes: int, owner: object = None, limit: int | None = None
    ) -> OutOfMemoryError:
        """The exception for an allocation that is not counted; also counts it as refused."""
        self.ooms = self.ooms + 1
        live = self.live_by_line() if self.live_by_line is not None else []
        budget = self.budget
        reason = budget.explain(nbytes) if budget is not None and limit == budget.nbytes else None
        site, advice = _site_of(owner), ""
        if self.adviser is not None and limit is not None:
            advice = self.adviser(self.reserved_for(nbytes) - limit)
        return out_of_memory(nbytes, self.allocated, limit, site, live, reason, advice)

    def _hold_limit(self, nbytes: int, owner: Owner) -> None:
        """Of an allocation that was counted: what it needs within the limit, or its refusal."""
        self.look()
        if self.total - self.freed <= self.slack:  # with all that is cached
            return
        if not self.fits(0):
            self._make_room(nbytes, owner)
        if self.backing is not None:
            self.backing.shrink()
            self.look()

    def _make_room(self, nbytes: int, owner: Owner) -> None:
        owner.nbytes = -1  # what the relievers allocate is measured without it
        self.made = self.made - 1
        self.total = self.total - nbytes  # one step with the two lines above
        while self.fits(nbytes) or self.relieve(nbytes):
            rounding, total = self._rounding(), self.total
            if total - self.freed + nbytes + rounding <= self._bound:
                self.total = total + nbytes  # one step with the test
                self.made = self.made + 1
                owner.nbytes = nbytes
                return
        raise self.refusal(nbytes, owner, self.bound)

    def relieve(self, nbytes: int = NO_LIMIT + 1) -> bool:
        """Have memory freed until `nbytes` fit below the limit; False: nobody has more to free."""
        budget = self.budget
        if budget is not None and budget.make_room(nbytes):
            return True
        if getattr(self._relieving, "now", False):
            return self.fits(nbytes)  # a reliever's own allocation: it may use what room there is
        self._relieving.now = True
        try:
            for reliever in tuple(self.relievers):
                with contextlib.suppress(OutOfMemoryError):  # it could not help; the next one may
                    reliever()
                if not self.fits(nbytes) and (budget is None or not budget.make_room(nbytes)):
                    continue
                return True
        finally:
            self._relieving.now = False
        return False

    def fits(self, nbytes: int) -> bool:
        """Whether so many bytes more are within the bound."""
        wanted = self.total - self.freed + nbytes
        if wanted <= self.slack or self.backing is None:
            return wanted <= self._bound
        return wanted + self.backing.rounding <= self._bound

    def reserved_for(self, nbytes: int) -> int:
        """Bytes that are in use, with what rounding adds, once there are `nbytes` more."""
        return self.total - self.freed + self._rounding() + nbytes

    def _rounding(self) -> int:
        return self.backing.rounding if self.backing is not None else 0


def _site_of(owner: object) -> Site:
    """Where the owner's expression was made, or the line that runs now."""
    return getattr(owner, "site", None) or call_site.find()


# -- reading ---------------------------------------------------------------------------------------

before_reading: list[Callable[[], object]] = []
"""What materializes all that is owed: for `synchronize()`, and where a region ends."""
before_counting: list[Callable[[], object]] = []
"""What materializes as much as there is room for, for whoever reads a counter."""


def materialize_pending() -> None:
    """Have everything made that was deferred. OutOfMemoryError: there is no room for it."""
    for materialize in tuple(before_reading):
        materialize()


def count_pending() -> None:
    """Have everything counted that was deferred and that there is room for. Public counters call it
    first.
    """
    for materialize in tuple(before_counting):
        materialize()


host: Final = Ledger("cpu")


def _unlock() -> None:
    """In a fork's child, where the thread that held the lock does not exist."""
    host._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_unlock)
