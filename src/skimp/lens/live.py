"""What is allocated, one record for each, now and at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from skimp._engine.memory.call_site import Site

BEFORE: Final = Site("", 0, "before the report began")  # of everything that was allocated already


class Record:
    """An allocation. `role` is what it became; None: saved for backward while `saves` tell so, or
    a temporary.
    """

    __slots__ = (
        "born", "bytes", "count", "freed", "gone", "name", "order", "owner", "role", "saves",
        "site", "step", "unsaved", "unsaved_at",
    )  # fmt: skip

    def __init__(
        self, nbytes: int, site: Site, order: int, born: float, step: int, count: int = 1
    ) -> None:
        self.bytes = nbytes
        self.site = site
        self.order = order
        self.born = born
        self.step = step
        self.count = count  # allocations: one, but for what was there before
        self.role: str | None = None
        self.owner = -1  # the number of the module whose parameter it belongs to
        self.name = ""  # and that parameter's
        self.saves = 0  # by how many nodes it is saved
        self.unsaved = -1  # the event at which the last of them had run
        self.unsaved_at = -1.0
        self.gone = -1  # the event that freed it
        self.freed = -1.0

    def role_at(self, event: int) -> str:
        """What it was at the moment of an event. Parameters, gradients and what optimizers keep
        are so from their beginning; what nodes saved is a temporary again when they have run.
        """
        if self.role is not None:
            return self.role
        if self.saves > 0 or event < self.unsaved:
            return "saved for backward"
        return "temporary"


class Live:
    """The records that are live, those at the highest peak so far, and what has changed since.

    A new peak folds the changes in. That costs at most as much as there were events since the
    last one, and never a copy of everything that is live.
    """

    def __init__(self, total: int, allocations: int) -> None:
        """What is live already."""
        self.total = self.peak = total
        self.before = Record(total, BEFORE, 0, 0.0, 0, allocations)
        self.peak_record = self.before
        self.peak_order = 0
        self.owners: dict[int, Record] = {}
        self._at_peak: dict[int, Record] = {}  # by the event of their birth
        self._came: dict[int, Record] = {}
        self._went: dict[int, Record] = {}
        self._before_at_peak = [total, allocations]

    def add(self, owner: int, record: Record) -> None:
        self.owners[owner] = record
        self.total += record.bytes
        self._came[record.order] = record
        if self.total > self.peak:
            self._fold()
            self.peak, self.peak_record, self.peak_order = self.total, record, record.order

    def adopt(self, owner: int, record: Record) -> None:
        """One of those that were live before gets a record of its own."""
        self.owners[owner] = record
        self._at_peak[record.order] = record
        self.before.bytes -= record.bytes
        self.before.count -= 1
        self._before_at_peak = [self.before.bytes, self.before.count]

    def remove(self, owner: int, nbytes: int) -> Record | None:
        self.total -= nbytes
        record = self.owners.pop(owner, None)
        if record is None:
            self.before.bytes -= nbytes
            self.before.count -= 1
        elif self._came.pop(record.order, None) is None:
            self._went[record.order] = record
        return record

    def at_peak(self) -> Iterator[Record]:
        """Who was live then."""
        yield from self._at_peak.values()
        nbytes, count = self._before_at_peak
        if nbytes:
            yield Record(nbytes, BEFORE, 0, 0.0, 0, count)

    def _fold(self) -> None:
        self._at_peak.update(self._came)
        self._came.clear()
        for order in self._went:
            self._at_peak.pop(order, None)
        self._went.clear()
        self._before_at_peak = [self.before.bytes, self.before.count]

    def now(self) -> dict[int, Any]:
        """The live records by their owner's id."""
        return self.owners
