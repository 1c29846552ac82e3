"""What is allocated, by line, now and at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from skimp._engine.memory.call_site import Site

BEFORE: Final = Site("", 0, "before the report began")  # of everything that was allocated already


class Live:
    """Totals by place (bytes, allocations) at the highest peak so far, and what has changed since.

    A new peak folds the changes in. That costs at most as much as there were events since the
    last one, and never a copy of everything that is live.
    """

    def __init__(self, total: int, allocations: int) -> None:
        """What is live already."""
        self.total = self.peak = total
        self.peak_site = BEFORE
        self.peak_time = 0.0
        self._owners: dict[int, Site] = {}
        self._at_peak: dict[Site, list[int]] = {BEFORE: [total, allocations]}
        self._since: dict[Site, list[int]] = {}

    def add(self, owner: int, nbytes: int, site: Site, when: float) -> None:
        self._owners[owner] = site
        self.total += nbytes
        _add(self._since, site, nbytes, 1)
        if self.total > self.peak:
            self._fold()
            self.peak, self.peak_site, self.peak_time = self.total, site, when

    def remove(self, owner: int, nbytes: int) -> None:
        self.total -= nbytes
        _add(self._since, self._owners.pop(owner, BEFORE), -nbytes, -1)

    def at_peak(self) -> Iterator[tuple[Site, int, int]]:
        """Who held what: place, bytes, allocations."""
        for site, (nbytes, allocations) in self._at_peak.items():
            if nbytes:
                yield site, nbytes, allocations

    def _fold(self) -> None:
        for site, (nbytes, allocations) in self._since.items():
            _add(self._at_peak, site, nbytes, allocations)
        self._since.clear()


def _add(totals: dict[Site, list[int]], site: Site, nbytes: int, allocations: int) -> None:
    held = totals.get(site)
    if held is None:
        totals[site] = [nbytes, allocations]
    else:
        held[0] += nbytes
        held[1] += allocations
