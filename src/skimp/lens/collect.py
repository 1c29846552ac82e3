"""The observer that a report is made from: it listens to a ledger and keeps records.

What modules, autograd and optimizers tell of tensors (their roles) comes by the same queue, so that
all of it is counted in the order in which it happened.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from operator import sub
from typing import Any, NamedTuple

from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import Ledger
from skimp.lens.data import Mark
from skimp.lens.layouts import Source, source
from skimp.lens.live import BEFORE, Live, Record
from skimp.lens.steps import Steps

BATCH = 4096  # events that wait at most: the work per event stays small, and so does the queue
COPIES = 4096  # kinds of copies that are told apart

# Ops whose result is a copy whatever the layouts are: counted by what they allocate.
BY_NATURE = {
    **dict.fromkeys(("cat", "concat", "concatenate", "hstack", "vstack", "dstack"), "joined"),
    **dict.fromkeys(("stack", "column_stack"), "stacked"),
    **dict.fromkeys(("getitem", "index_select", "gather", "take", "masked_select"), "selected"),
    **dict.fromkeys(("pad", "constant_pad_nd"), "padded"),
    **dict.fromkeys(("roll", "flip", "fliplr", "flipud", "rot90"), "moved"),
    **dict.fromkeys(("repeat", "tile", "repeat_interleave"), "repeated"),
    **dict.fromkeys(("tensor", "as_tensor", "asarray"), "from Python or NumPy"),
}

# owner, bytes or a role, and where and when; nowhere: freed; a word: what became of it
_Event = tuple[int, Any, Site | str | None, float]


class Role(NamedTuple):
    """What a tensor's bytes became: `of` is the id of the parameter's storage that they belong to
    (its own for a parameter), `owner` the number of a module's path, `name` the parameter's.
    """

    role: str
    of: int = 0
    owner: int = -1
    name: str = ""


class Copy(NamedTuple):
    """What copies are told apart by."""

    site: Site
    op: str
    reason: str
    forced: bool


class Copies:
    """All copies of one kind."""

    __slots__ = ("bytes", "made", "shape", "strides", "times")

    def __init__(self, source: Source | None, made: Site | None) -> None:
        self.bytes = self.times = 0
        self.shape = source.shape if source is not None else ()
        self.strides = source.strides if source is not None else ()
        self.made = made


class Collector:
    """Counts a ledger's events exactly, the moment of the peak included.

    An event is queued in one atomic step and counted later: a storage may die inside of any other
    event (the garbage collector decides) and on any thread, and each event has to count whole.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.perf_counter) -> None:
        self._ledger = ledger
        self._before = _counters(ledger)
        self._clock = clock
        self._start = clock()
        self._events: deque[_Event] = deque()
        self._tell = self._events.append
        self._counting = threading.Lock()
        self._order = 0
        self._waiting: dict[int, Role] = {}  # roles of deferred storages
        self.live = Live(ledger.allocated, ledger.made - ledger.dropped)
        self.steps = Steps()
        self.steps.now.total = self.steps.now.peak = ledger.allocated
        self.copies: dict[Copy, Copies] = {}
        # what was given to the op that runs, for those that copy by nature
        self.given: Callable[[str], Source | None] | None = None

    # -- the ledger calls these -------------------------------------------------------------------

    def allocated(self, owner: int, nbytes: int, site: Site) -> None:
        self._tell((owner, nbytes, site, self._clock()))
        reason = BY_NATURE.get(site.op)
        if reason is not None:
            given = None if self.given is None else self.given(site.op)
            self._tell((nbytes, (Copy(site, site.op, reason, False), given), "copied", 0.0))
        if len(self._events) >= BATCH:
            self.count()

    def freed(self, owner: int, nbytes: int) -> None:
        self._tell((owner, nbytes, None, self._clock()))
        if len(self._events) >= BATCH:
            self.count()

    def copied(
        self, nbytes: int, op: str, reason: str, site: Site, given: Any = None, forced: bool = True
    ) -> None:
        copy = Copy(site, op or site.op, reason, forced)
        self._tell((nbytes, (copy, source(given)), "copied", 0.0))
        if len(self._events) >= BATCH:
            self.count()

    # -- the others call these --------------------------------------------------------------------

    def saved(self, owner: int) -> None:
        """A node saved a tensor on a storage."""
        self._tell((owner, 0, "saved", 0.0))

    def unsaved(self, owners: list[int]) -> None:
        """A node that had saved tensors on storages has run and let them go."""
        self._tell((0, owners, "unsaved", self._clock()))

    def became(self, owner: int, role: Role) -> None:
        """A storage's bytes have a role from now on."""
        self._tell((owner, role, "role", 0.0))

    def marked(self, kind: str, name: str, start: float, end: float) -> None:
        """Something of interest went on for a while, by the clock."""
        at = self._start
        self._tell((0, Mark(kind, name, start - at, end - at), "mark", 0.0))

    def step(self) -> None:
        """A step is over."""
        self._tell((0, None, "step", self._clock()))

    # -- counting ---------------------------------------------------------------------------------

    def count(self) -> None:
        """Take what is queued into the totals, unless somebody (perhaps this thread) is at it."""
        if not self._counting.acquire(blocking=False):
            return
        try:
            events, next_event = self._events, self._events.popleft
            while events:
                owner, what, site, when = next_event()
                if site is None:
                    self._count_free(owner, what, when - self._start)
                elif type(site) is str:
                    self._count_word(owner, what, site, when - self._start)
                else:
                    self._count_allocation(owner, what, site, when - self._start)  # type: ignore[arg-type]
        finally:
            self._counting.release()

    def _count_allocation(self, owner: int, nbytes: int, site: Site, when: float) -> None:
        self._order = order = self._order + 1
        now = self.steps.now
        record = Record(nbytes, site, order, when, now.number)
        if getattr(site, "kept", False):
            record.saves = 1
        if self._waiting and owner in self._waiting:
            self._become(record, self._waiting.pop(owner))
        live = self.live
        live.add(owner, record)
        now.records.append(record)
        if live.total > now.peak:
            now.peak = live.total
            if live.peak_order == order:
                self.steps.peak = now

    def _count_free(self, owner: int, nbytes: int, when: float) -> None:
        self._order = order = self._order + 1
        record = self.live.remove(owner, nbytes)
        if record is not None:
            record.gone, record.freed = order, when
            now = self.steps.now
            if record.step != now.number:
                now.records.append(record)

    def _count_word(self, owner: int, what: Any, word: str, when: float) -> None:
        if word == "copied":
            self._count_copy(owner, *what)
        elif word == "saved":
            record = self.live.owners.get(owner)
            if record is not None:
                record.saves += 1
        elif word == "unsaved":
            for one in what:
                self._unsave(one, when)
        elif word == "role":
            record = self.live.owners.get(owner)
            if record is not None:
                self._become(record, what)
            else:
                self._waiting[owner] = what
        elif word == "mark":
            self.steps.now.marks.append(what)
        else:
            self._waiting.clear()
            self.steps.end(when, self._order, self.live.total)

    def _unsave(self, owner: int, when: float) -> None:
        record = self.live.owners.get(owner)
        if record is not None and record.saves > 0:
            record.saves -= 1
            if not record.saves:
                self._order = record.unsaved = self._order + 1
                record.unsaved_at = when

    def _become(self, record: Record, role: Role) -> None:
        if record.role == "parameter" and role.role != "parameter":
            return  # a parameter's own bytes: tied to something else, a parameter still
        if role.role == "data" and record.role is not None:
            return
        record.role = role.role
        whose = self.live.owners.get(role.of) if role.of else None
        if whose is not None and role.role != "parameter":
            record.owner, record.name = whose.owner, whose.name
        if role.owner >= 0:
            record.owner = role.owner
        if role.name and not record.name:
            record.name = role.name

    def _count_copy(self, nbytes: int, copy: Copy, given: Source | None) -> None:
        found = self.copies.get(copy)
        if found is None:
            if len(self.copies) >= COPIES:
                copy = copy._replace(reason="of many kinds")
            found = self.copies.setdefault(copy, Copies(given, self._laid_by(given)))
        found.bytes += nbytes
        found.times += 1

    def _laid_by(self, given: Source | None) -> Site | None:
        """The view that made a layout, else who made the bytes."""
        if given is None or given.made is not None:
            return None if given is None else given.made
        record = self.live.owners.get(given.owner)
        return None if record is None else record.site

    # -- what it knows ----------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._start

    def since(self) -> tuple[int, int, int]:
        """Allocations, their bytes, and bytes never written, since the beginning."""
        made, allocated, unwritten = map(sub, _counters(self._ledger), self._before)
        return made, allocated, unwritten

    def adopt(self, owner: int, nbytes: int) -> None:
        """A storage that was there before gets a record of its own."""
        self._order += 1
        self.live.adopt(owner, Record(nbytes, BEFORE, self._order, 0.0, 0))


def _counters(ledger: Ledger) -> tuple[int, int, int]:
    """Those that only grow."""
    return ledger.made, ledger.total, ledger.unwritten
