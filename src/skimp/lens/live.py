"""What is allocated, one record for each, now and at the peak."""

from __future__ import annotations

from typing import Final

from skimp._engine.memory.call_site import Site

BEFORE: Final = Site("", 0, "before the report began")  # of everything that was allocated already


class Record:
    """An allocation. `role` is what it became; None: saved for backward while `saves` tell so, or
    a temporary. Made without a call of Python: most of it is as the class has it.
    """

    bytes: int
    site: Site
    born = 0.0
    step = 0
    order = 0  # the event that made it
    count = 1  # allocations: one, but for what was there before
    role: str | None = None
    owner = -1  # the number of the module whose parameter it belongs to
    name = ""  # and that parameter's
    saves = 0  # by how many nodes it is saved
    unsaved = -1  # the event at which the last of them had run
    unsaved_at = -1.0
    gone = -1  # the event that freed it
    freed = -1.0

    def role_at(self, event: int) -> str:
        """What it was at the moment of an event. Parameters, gradients and what optimizers keep
        are so from their beginning; what nodes saved is a temporary again when they have run.
        """
        if self.role is not None:
            return self.role
        if self.saves > 0 or event < self.unsaved:
            return "saved for backward"
        return "temporary"


class LiveRecords:
    """The records that are live, and those that were at the highest peak so far: of them, who is
    gone since. Events are numbered in their order.
    """

    __slots__ = (
        "before", "bytes_before", "count_before", "order", "owners", "peak", "peak_order",
        "peak_record", "total", "went",
    )  # fmt: skip

    def __init__(self, total: int, allocations: int) -> None:
        """What is live already."""
        self.total = self.peak = total
        self.order = 0
        self.before = before(total, allocations)
        self.owners: dict[int, Record] = {}
        self.peak_record = self.before
        self.peak_order = 0
        self.bytes_before = total  # of `before` at the peak
        self.count_before = allocations
        self.went: list[Record] = []  # freed since the peak

    def adopt(self, owner: int, record: Record) -> None:
        """One of those that were live before gets a record of its own."""
        self.order = self.peak_order = record.order = self.order + 1
        self.owners[owner] = record
        self.before.bytes -= record.bytes
        self.before.count -= 1
        self.bytes_before = self.before.bytes
        self.count_before = self.before.count

    def at_peak(self) -> list[Record]:
        """Who was live then."""
        order = self.peak_order
        there = [r for r in [*self.owners.values(), *self.went] if r.order <= order]
        if self.bytes_before:
            there.append(before(self.bytes_before, self.count_before))
        return there


def before(nbytes: int, count: int = 1) -> Record:
    """Allocations from before the report began, as one."""
    record = Record()
    record.bytes, record.site, record.count = nbytes, BEFORE, count
    return record
