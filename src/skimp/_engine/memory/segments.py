"""A segment: a run of addresses, and which of them are free.

`ranges` lists what is free by address. Every change replaces one slice of that list, and happens
only if nothing has changed since it was decided (`version`): a test and two stores, one step for
other threads and for finalizers and signal handlers on the same one (see ledger.py). Whoever comes
too late decides again. So there is no lock, and whatever interrupts finds the list whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple


class Range(NamedTuple):
    """Free bytes. `warm`: they were used and have pages; others have none, and are zero."""

    start: int
    end: int
    warm: bool


class Segment:
    """`buffer` is writable memory of `size` bytes that is not an ndarray."""

    __slots__ = ("buffer", "ranges", "size", "version")

    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer: Final = buffer
        self.size: Final = size
        self.ranges: Final = [Range(0, size, False)]
        self.version = 0

    def take_warm(self, size: int) -> int | None:
        """Where `size` bytes begin that were used before: the first place that has as many."""
        while True:
            version = self.version
            for i, (start, end, warm) in enumerate(self.ranges):
                if warm and end - start >= size:
                    left = [Range(start + size, end, True)] if start + size < end else []
                    if self._replace(version, slice(i, i + 1), left):
                        return start
                    break
            else:
                if self.version == version:
                    return None

    def take(self, size: int) -> tuple[int, int] | None:
        """Where `size` bytes begin, and how many of them are not warm: the first place."""
        while True:
            version = self.version
            found = _first(list(self.ranges), size)
            if found is None:
                if self.version == version:
                    return None
                continue
            i, j, start, left, cold = found
            if self._replace(version, slice(i, j), left):
                return start, cold

    def take_upper(self, found: Range, nbytes: int) -> Range | None:
        """Take the last `nbytes` of a free range, or all of it if it has not more; None if it is
        not there any more.
        """
        start, end, _ = found
        middle = max(start, end - nbytes)
        left = [Range(start, middle, True)] if start < middle else []
        while True:
            version = self.version
            i = bisect_left(self.ranges, (start,))
            if self.ranges[i : i + 1] != [found]:
                if self.version == version:
                    return None
                continue
            if self._replace(version, slice(i, i + 1), left):
                return Range(middle, end, True)

    def take_all(self, also_warm: bool) -> int | None:
        """Take the whole segment if it is all free; returns how many bytes of it are warm."""
        while True:
            version = self.version
            ranges = list(self.ranges)
            if sum([end - start for start, end, _ in ranges]) < self.size:
                return None
            warmed = sum([end - start for start, end, warm in ranges if warm])
            if warmed and not also_warm:
                return None
            if self._replace(version, slice(0, len(ranges)), []):
                return warmed

    def put(self, start: int, end: int, warm: bool) -> None:
        """Bytes are free again, joined with their neighbours of the same kind."""
        while True:
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
            if self._replace(version, slice(i, j), [Range(first, last, warm)]):
                return

    def _replace(self, version: int, where: slice, ranges: list[Range]) -> bool:
        """Change the list, if it is still as it was at `version`."""
        if self.version == version:  # one step with the next two lines
            self.version = version + 1
            self.ranges[where] = ranges
            return True
        return False


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
