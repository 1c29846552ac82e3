"""What is allocated, by line, now and at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from skimp.memory.sites import Site

BEFORE: Final = Site("", 0, "before the report began")  # of everything that was allocated already


class Total(NamedTuple):
    bytes: int
    allocations: int


class Live:
    """Totals by place at the highest peak so far, and what has changed since.

    A new peak folds the changes in. That costs at most as much as there were events since the
    last one, and never a copy of everything that is live.
    """

    def __init__(self, total: int, allocations: int) -> None:
        """What is live already."""
        self.total = self.peak = total
        self.peak_site = BEFORE
        self.peak_time = 0.0
        self._owners: dict[int, Site] = {}
        self._at_peak: dict[Site, Total] = {BEFORE: Total(total, allocations)}
        self._since: dict[Site, Total] = {}

    def add(self, owner: int, nbytes: int, site: Site, when: float) -> None:
        self._owners[owner] = site
        self._change(site, nbytes, 1)
        if self.total > self.peak:
            self._fold()
            self.peak, self.peak_site, self.peak_time = self.total, site, when

    def remove(self, owner: int, nbytes: int) -> None:
        self._change(self._owners.pop(owner, BEFORE), -nbytes, -1)

    def at_peak(self) -> Iterator[tuple[Site, Total]]:
        return ((site, total) for site, total in self._at_peak.items() if total.bytes)

    def _change(self, site: Site, nbytes: int, count: int) -> None:
        self.total += nbytes
        bytes_, allocations = self._since.get(site, (0, 0))
        self._since[site] = Total(bytes_ + nbytes, allocations + count)

    def _fold(self) -> None:
        for site, change in self._since.items():
            bytes_, allocations = self._at_peak.get(site, (0, 0))
            self._at_peak[site] = Total(bytes_ + change.bytes, allocations + change.allocations)
        self._since.clear()
