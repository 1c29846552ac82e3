"""A segment: a run of addresses, and which of them are free.

`ranges` lists what is free by address. Every change replaces one slice of that list, and happens
only if nothing has changed since it was decided (`version`): a test and two stores, one step for
other threads and for finalizers and signal handlers on the same one (see ledger.py). Whoever comes
too late decides again. So there is no lock, and whatever interrupts finds the list whole.

What is taken belongs to a `Claim` from that very step on, and what comes back leaves it in the step
that makes it free: a block is always in the list, or somebody's, and comes back once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from skimp._engine.memory.tally import Tally

SEWN: Final = 512  # seams more than were left the last time, before there is a new beginning

_tuple = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's


class Range(NamedTuple):
    """Free bytes. `warm`: they were used and have pages; others have none, and are zero."""

    start: int
    end: int
    warm: bool


class Claim:
    """Who has bytes of a segment, from `start` on; no segment: nothing, or nothing any more."""

    asked: int = 0  # how many somebody wanted, before rounding
    segment: Segment | None = None
    start: int = -1
    cold: int = 0  # how many of the bytes were never used
    warm: bool = True  # the bytes have pages
    counted: bool = False  # among the leases

    def __init__(self, size: int) -> None:
        self.size = size


class Segment:
    """`buffer` is writable memory of `size` bytes that is not an ndarray. `held` counts the bytes
    of all segments that have pages.
    """

    __slots__ = ("buffer", "closed", "held", "many", "moves", "ranges", "seams", "size", "version")

    def __init__(self, buffer: Any, size: int, held: Tally) -> None:
        self.buffer: Final = buffer
        self.size: Final = size
        self.held: Final = held
        self.ranges: Final = [Range(0, size, False)]
        self.version = 0
        self.closed = False  # all of it was free, and nobody gets any of it again
        self.moves = True  # pages of it can be moved, as far as anybody knows (moving.py)
        self.seams: list[
            int
        ] = []  # where a move has to begin anew, in order; each change is a new list
        self.many = SEWN  # as many of them: from there on free addresses are asked for anew

    def take_part(self, claim: Claim) -> bool:
        """Take `claim.size` warm bytes, the first place that has as many."""
        size = claim.size
        while True:
            version = self.version
            for i, (start, end, warm) in enumerate(self.ranges):
                if warm and end - start >= size:
                    middle = start + size
                    left = _tuple(Range, (middle, end, True)) if middle < end else None
                    if self.version != version:
                        break
                    self.version = version + 1  # one step with the test and the lines below
                    if left is None:
                        del self.ranges[i]
                    else:
                        self.ranges[i] = left
                    claim.segment = self
                    claim.start = start
                    claim.cold = 0
                    return True
            else:
                if self.version == version:
                    return False

    def take(self, claim: Claim) -> bool:
        """Take `claim.size` bytes, warm or not: the first place."""
        while True:
            version = self.version
            found = _first(list(self.ranges), claim.size)
            if found is None:
                if self.version == version:
                    return False
                continue
            i, j, start, left, cold = found
            if self._take(version, slice(i, j), left, claim, start, cold):
                return True

    def take_beside(self, claim: Claim) -> list[tuple[int, int]]:
        """Take `claim.size` bytes that lie together, the longest warm ones that lie beside enough
        others and these: where pages are wanted, `claim.cold` bytes, which are not counted as if
        they had some. Nowhere: there is no such place.
        """
        while True:
            version = self.version
            found = _beside(list(self.ranges), claim.size)
            if found is None:
                if self.version == version:
                    return []
                continue
            where, start, left, parts = found
            cold = sum([b - a for a, b in parts])
            if self._take(version, where, left, claim, start, cold, counted=False):
                return parts

    def take_upper(self, found: Range, claim: Claim) -> bool:
        """Take the last `claim.size` bytes of a free range, or all of it if it has not more; False
        if it is not there any more.
        """
        start, end, warm = found
        middle = max(start, end - claim.size)
        left = [Range(start, middle, warm)] if start < middle else []
        claim.size = end - middle
        while True:
            version = self.version
            i = bisect_left(self.ranges, (start,))
            if self.ranges[i : i + 1] != [found]:
                if self.version == version:
                    return False
                continue
            if self._take(version, slice(i, i + 1), left, claim, middle, 0):
                return True

    def close(self, also_warm: bool) -> int | None:
        """Take the whole segment for ever if it is all free; returns how many bytes of it were
        warm.
        """
        while True:
            version = self.version
            ranges = list(self.ranges)
            if self.closed or sum([end - start for start, end, _ in ranges]) < self.size:
                return None
            warmed = sum([end - start for start, end, warm in ranges if warm])
            if warmed and not also_warm:
                return None
            held = self.held
            if self.version == version:  # one step with the lines below
                self.version = version + 1
                self.ranges[:] = ()
                self.closed = True
                held.freed = held.freed + warmed
                return warmed

    def put(self, claim: Claim) -> None:
        """A claim's bytes are free again, joined with their neighbours of the same kind."""
        start, end, warm = claim.start, claim.start + claim.size, claim.warm
        while claim.segment is self:
            version = self.version
            ranges = self.ranges
            i = j = bisect_left(ranges, (start,))
            first, last = start, end
            after = ranges[j : j + 1]
            if after and after[0].start == end and after[0].warm is warm:
                last, j = after[0].end, j + 1
            before = ranges[i - 1 : i] if i else []
            if before and before[0].end == start and before[0].warm is warm:
                first, i = before[0].start, i - 1
            where, joined = slice(i, j), [_tuple(Range, (first, last, warm))]
            if self.version == version and claim.segment is self:  # one step with the lines below
                self.version = version + 1
                self.ranges[where] = joined
                claim.segment = None

    def _take(
        self,
        version: int,
        where: slice,
        left: list[Range],
        claim: Claim,
        start: int,
        cold: int,
        counted: bool = True,
    ) -> bool:
        """Change the list and the claim, if the list is still as it was at `version`. `counted`: as
        if all of it had pages from now on.
        """
        held = self.held
        if self.version != version:
            return False
        self.version = version + 1  # one step with the test and the lines below
        self.ranges[where] = left
        claim.segment = self
        claim.start = start
        claim.cold = cold
        if not counted:
            return True
        held.allocated = held.allocated + cold
        if held.allocated - held.freed > held.peak:
            held.peak = held.allocated - held.freed
        return True


def _first(ranges: Sequence[Range], size: int) -> tuple[int, int, int, list[Range], int] | None:
    """The first free bytes, warm or not, that lie together and are `size`.

    Returns which ranges they touch (from, to), where they begin, what is left of these ranges, and
    how many of the bytes are not warm.
    """
    begin = cold = 0
    start = reached = -1
    for k, (a, b, warm) in enumerate(ranges):
        if a != reached:
            begin, start, cold = k, a, 0
        reached = b
        if b - start >= size:
            end = start + size
            if not warm:
                cold += end - a
            left = [Range(end, b, warm)] if end < b else []
            return begin, k + 1, start, left, cold
        if not warm:
            cold += b - a
    return None


def _beside(
    ranges: Sequence[Range], size: int
) -> tuple[slice, int, list[Range], list[tuple[int, int]]] | None:
    """The first of all free bytes that lie together, are `size`, and have the longest warm ones
    that others do.

    Returns which ranges they touch, where they begin, what is left of these ranges, and which of
    the bytes are not warm.
    """
    longest, first, last, start = -1, 0, 0, 0
    i = 0
    while i < len(ranges):
        begin, reached, j = ranges[i].start, ranges[i].end, i + 1
        while j < len(ranges) and ranges[j].start == reached:
            reached = ranges[j].end
            j += 1
        if reached - begin >= size:
            for a, b, warm in ranges[i:j]:
                if warm * (b - a) > longest:
                    longest, first, last = warm * (b - a), i, j
                    start = min(a if warm else begin, reached - size)
        i = j
    if longest < 0:
        return None
    while ranges[first].end <= start:
        first += 1
    end = start + size
    left, cold = [], []
    for k in range(first, last):
        a, b, warm = ranges[k]
        if a >= end:
            last = k
            break
        if a < start:
            left.append(Range(a, start, warm))
        if b > end:
            left.append(Range(end, b, warm))
        if not warm:
            cold.append((max(a, start), min(b, end)))
    return slice(first, last), start, left, cold
