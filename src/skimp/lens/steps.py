"""The steps of a program: figures of each, and the allocations of a few of them one by one.

Memory is bounded whatever the number of steps: figures of steps that are over for long are put
together two by two, and allocations are kept for the first step, the step of the peak and the last
ones.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from skimp.lens.data import Step
from skimp.lens.live import Record

ROWS: Final = 2048  # figures that are kept at most
RECENT: Final = 4  # steps whose allocations are kept
EVENTS: Final = 1 << 17  # allocations that are kept of one step

_Row = tuple[int, int, float, float, int, int]  # a `Step`, which costs more to make


class Kept:
    """One step's allocations: born in it, or freed in it."""

    def __init__(self, number: int, start: float, order: int, total: int) -> None:
        self.number = number
        self.start = start
        self.order = order  # the event with which it begins
        self.total = total  # bytes then
        self.peak = total
        self.records: deque[Record] = deque(maxlen=EVENTS)
        self.marks: deque[tuple[str, str, float, float]] = deque(maxlen=4096)  # as of `Mark`
        self.followed: Any = None  # its events, where it was like the one before (routine.py)
        self.end: float | None = None


class Steps:
    """All steps until now."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self.now = Kept(0, 0.0, 0, 0)
        self.recent: deque[Kept] = deque(maxlen=RECENT)
        self.peak: Kept = self.now  # the step with the peak

    def end(self, when: float, order: int, total: int) -> Kept:
        """The step is over, and the next begins; gives the one that ended."""
        done = self.now
        done.end = when
        rows, number = self._rows, done.number
        rows.append((number, number, done.start, when - done.start, done.peak, total))
        if len(rows) > ROWS:
            self._thin()
        self.recent.append(done)
        self.now = Kept(done.number + 1, when, order, total)
        return done

    @property
    def rows(self) -> list[Step]:
        """The figures of those that are over."""
        return [Step(*row) for row in self._rows]

    def kept(self) -> list[Kept]:
        """The steps with allocations one by one, in their order."""
        found = {k.number: k for k in (self.peak, *self.recent, self.now)}
        return [found[n] for n in sorted(found)]

    def _thin(self) -> None:
        """Put the older half of the figures together two by two."""
        half = len(self._rows) // 2
        old, new = self._rows[:half], self._rows[half:]
        merged = [_together(a, b) for a, b in zip(old[::2], old[1::2], strict=False)]
        self._rows = [*merged, *old[len(merged) * 2 :], *new]


def _together(a: _Row, b: _Row) -> _Row:
    first, _, start, seconds, peak, _ = a
    _, last, _, more, other, end = b
    return first, last, start, seconds + more, max(peak, other), end
