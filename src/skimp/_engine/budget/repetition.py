"""Whether a program does what it did before: then a budget that was enough is enough again.

A period is what lies between two beginnings of backward, known by the sizes of its large
allocations and by what was held when each of them came. What came after a period is expected after
the next one like it. Where small ones, which nobody sees, are more than half, nothing is expected.
"""

from __future__ import annotations

from array import array
from typing import Final

from skimp._engine.memory.ledger import host

MANY: Final = 1 << 14  # allocations in a period, of which more are not followed
KNOWN: Final = 64  # periods
ROOM: Final = 1 << 16  # bytes that a period may hold beyond what one like it did: logs grow


class Period:
    """Bytes that were asked for and bytes that were held then, allocation by allocation."""

    __slots__ = ("before", "held", "next", "room", "sizes")

    def __init__(self) -> None:
        self.before: Final = host.total  # bytes that were ever allocated
        self.sizes: Final = array("q")
        self.held: Final = array("q")
        self.next: Period | None = None  # the one that came after it
        self.room = 0  # bytes that it may hold beyond that

    def is_like(self, other: Period) -> bool:
        """Whether this asked for the same, and held about the same: never more than that may."""
        room = other.room
        return self.sizes == other.sizes and all(
            [-ROOM <= a - b <= room for a, b in zip(self.held, other.held, strict=True)]
        )

    def is_plain(self) -> bool:
        """Whether what ends now is told by its large allocations, and they are not too many."""
        return len(self.sizes) <= MANY and 2 * sum(self.sizes) >= host.total - self.before

    def most(self) -> int:
        """Bytes at the highest of the allocations."""
        return max([a + b for a, b in zip(self.sizes, self.held, strict=True)], default=0)


class Repetition:
    """The periods of a program, and which of them is expected now."""

    def __init__(self) -> None:
        self.expected: Period | None = None  # follows it, and remembers nothing
        self._at = 0  # allocations that went as expected
        self._now = Period()
        self._last: Period | None = None
        self._known: list[Period] = []

    def remember(self, nbytes: int) -> None:
        """A large allocation is about to be made."""
        now = self._now
        if len(now.sizes) <= MANY:
            now.sizes.append(nbytes)
            now.held.append(host.total - host.freed)

    def goes_on(self, nbytes: int) -> bool:
        """Whether a large allocation is the one that is expected, with no more held than then."""
        expected, at = self.expected, self._at
        if expected is None or at == len(expected.sizes) or expected.sizes[at] != nbytes:
            return False
        self._at = at + 1
        return host.total - host.freed <= expected.held[at] + expected.room

    def forget(self) -> None:
        """Expect nothing, and begin to remember in the middle of a period, which is not known."""
        self.expected = self._last = None
        self._at, self._now = 0, Period()

    def forget_all(self) -> None:
        """The same, and what was is no measure of what comes."""
        self.forget()
        self._known.clear()

    def turn(self, budget: int) -> Period | None:
        """A period ends; the one that is expected after it, if one like it was there before."""
        if self.expected is not None:
            found = self.expected if self._at == len(self.expected.sizes) else None
        else:
            found = self._like_before(self._now, budget)
        self._at, self._now = 0, Period()
        self._last = found
        return None if found is None else found.next

    def _like_before(self, now: Period, budget: int) -> Period | None:
        """The known period that one is like; if there is none, it is known from now on."""
        if not now.is_plain():
            return None
        found = next((one for one in self._known if now.is_like(one)), None)
        one = now if found is None else found
        if found is None:
            rounding = 0 if host.backing is None else host.backing.rounding
            now.room = min(max(budget - now.most() - rounding, 0) // 2, ROOM)
            self._known.append(now)
            if len(self._known) > KNOWN:
                self._known.pop(0).next = None
        if self._last is not None:
            self._last.next = one
        return one
