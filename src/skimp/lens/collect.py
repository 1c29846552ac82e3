"""The observer that a report is made from: it listens to a ledger and keeps records, and is told
by modules, autograd and optimizers what tensors are for (their roles).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from operator import sub
from typing import Any, NamedTuple

from skimp._engine.dispatch.row import OPS
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import NO_LIMIT, Ledger
from skimp.lens.layouts import Source, source
from skimp.lens.live import LiveRecords, Record, before
from skimp.lens.steps import Kept, Steps

COPIES = 4096  # kinds of copies that are told apart

# Ops whose result is a copy whatever the layouts are: counted by what they allocate. (PyTorch's
# have the same names.)
BY_NATURE = {
    name.strip("_"): op.copies for op in OPS.values() if op.copies for name in (op.name, *op.forms)
}


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
    """Counts a ledger's events exactly, the moment of the peak included, each when it happens.

    A storage may die inside of any other event (the garbage collector decides) and on any thread.
    So an event is counted in statements without calls, between which nothing else happens
    (_engine/interpreter.py): from where it takes its number on, until all totals agree.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.perf_counter) -> None:
        self._ledger = ledger
        self._before = _counters(ledger)
        self._clock = clock
        self._start = clock()
        self.latest = self._start  # when the last allocation was, by the clock
        self._waiting: dict[int, Role] = {}  # roles of deferred storages
        self.live = LiveRecords(ledger.allocated, ledger.made - ledger.dropped)
        self.steps = Steps()
        self.steps.now.total = self.steps.now.peak = ledger.allocated
        self.copies: dict[Copy, Copies] = {}
        # what was given to the op that runs, for those that copy by nature
        self.given: Callable[[str], Source | None] | None = None

    # -- the ledger calls these -------------------------------------------------------------------

    def allocated(self, owner: int, nbytes: int, site: Site, when: float | None = None) -> Record:
        """`when`: by the clock, of an event that is told late."""
        now, live = self.steps.now, self.live
        record = Record()
        record.bytes, record.site, record.step = nbytes, site, now.number
        if when is None:
            when = self._clock()
        self.latest = when
        record.born = when - self._start
        live.order = record.order = order = live.order + 1
        live.owners[owner] = record
        live.total = total = live.total + nbytes
        if total > now.peak:
            now.peak = total
            if total > live.peak:
                live.peak = total
                live.peak_record = record
                live.peak_order = order
                live.bytes_before = live.before.bytes
                live.count_before = live.before.count
                self.steps.peak = now
                if live.went:
                    live.went.clear()
        now.records.append(record)
        if getattr(site, "kept", False):
            record.saves = 1
        if self._waiting and owner in self._waiting:
            self._become(record, self._waiting.pop(owner))
        if site.op in BY_NATURE:
            self.copies_by_nature(nbytes, site, 1)
        return record

    @enters_uninterrupted
    def freed(self, owner: int, nbytes: int, when: float | None = None) -> None:
        now, live = self.steps.now, self.live
        when = (self._clock() if when is None else when) - self._start
        record = live.owners.pop(owner, None)
        live.order = order = live.order + 1
        live.total = live.total - nbytes
        if record is None:  # one of those that have no record of their own
            live.before.bytes -= nbytes
            live.before.count -= 1
            return
        record.gone = order
        record.freed = when
        if record.order <= live.peak_order:
            live.went.append(record)
        if record.step != now.number:
            now.records.append(record)

    def copied(
        self, nbytes: int, op: str, reason: str, site: Site, given: Any = None, forced: bool = True
    ) -> None:
        self._copied(nbytes, Copy(site, site.op or op, reason, forced), source(given))

    # -- the others call these --------------------------------------------------------------------

    def saved(self, owner: int) -> None:
        """A node saved a tensor on a storage."""
        record = self.live.owners.get(owner)
        if record is not None:
            record.saves += 1

    def unsaved(self, records: Iterable[Record], when: float | None = None) -> None:
        """A node that had saved tensors on storages has run and let them go."""
        live = self.live
        for record in records:
            left = record.saves
            if left > 0:
                record.saves = left - 1
                if left == 1:
                    live.order = record.unsaved = live.order + 1
                    record.unsaved_at = (self._clock() if when is None else when) - self._start

    def became(self, owner: int, role: Role) -> None:
        """A storage's bytes have a role from now on."""
        record = self.live.owners.get(owner)
        if record is not None:
            self._become(record, role)
        else:
            self._waiting[owner] = role

    def gradient(self, owner: int, of: int) -> None:
        """A storage's bytes are a parameter's gradient: `became`, many times a step."""
        record = self.live.owners.get(owner)
        if record is None or record.role == "parameter":
            self.became(owner, Role("gradient", of))
            return
        record.role = "gradient"
        whose = self.live.owners.get(of)
        if whose is not None:
            record.owner, record.name = whose.owner, whose.name

    def marked(self, kind: str, name: str, start: float, end: float) -> None:
        """Something of interest went on for a while, by the clock."""
        self.steps.now.marks.append((kind, name, start - self._start, end - self._start))

    def step(self) -> None:
        """A step is over."""
        self._waiting.clear()
        self.steps.end(self._clock() - self._start, self.live.order, self.live.total)

    def apart(self, number: int, order: int, total: int) -> Collector:
        """A collector for the events of one step that is over, from these events and bytes on."""
        made = Collector(self._ledger, self._clock)
        made._start = self._start
        made.steps.now = Kept(number, 0.0, order, total)
        made.live = LiveRecords(total, 0)
        made.live.order, made.live.peak = order, NO_LIMIT
        return made

    # -- counting ---------------------------------------------------------------------------------

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

    def copies_by_nature(self, nbytes: int, site: Site, times: int) -> None:
        """An op that copies whatever the layouts are has allocated its results."""
        given = None if self.given is None else self.given(site.op)
        self._copied(nbytes, Copy(site, site.op, BY_NATURE[site.op], False), given, times)

    def _copied(self, nbytes: int, copy: Copy, given: Source | None, times: int = 1) -> None:
        found = self.copies.get(copy)
        if found is None:
            if len(self.copies) >= COPIES:
                copy = copy._replace(reason="of many kinds")
            found = self.copies.setdefault(copy, Copies(given, self._laid_by(given)))
        found.bytes += nbytes
        found.times += times

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
        self.live.adopt(owner, before(nbytes))


def _counters(ledger: Ledger) -> tuple[int, int, int]:
    """Those that only grow."""
    return ledger.made, ledger.total, ledger.unwritten
