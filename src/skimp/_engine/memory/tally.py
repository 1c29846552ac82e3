"""A number that goes up and down, its peak and its sums."""

from __future__ import annotations


class Tally:
    """`allocated` and `freed` are sums since the beginning; `current` is what they differ by."""

    __slots__ = ("allocated", "freed", "peak")

    def __init__(self) -> None:
        self.allocated = 0
        self.freed = 0
        self.peak = 0

    @property
    def current(self) -> int:
        return self.allocated - self.freed

    def add(self, n: int) -> None:
        self.allocated = self.allocated + n  # one step (see ledger.py), and so is the rest
        current = self.allocated - self.freed
        if current > self.peak:
            self.peak = current

    def remove(self, n: int) -> None:
        self.freed = self.freed + n

    def reset_peak(self) -> None:
        self.peak = self.allocated - self.freed
