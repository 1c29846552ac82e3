"""A number that goes up and down, its peak and its sums.

Whoever changes one does so in one step with what it counts (see ledger.py).
"""

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

    def rise(self) -> None:
        """After `allocated` has grown: the peak follows."""
        current = self.allocated - self.freed  # one step (see ledger.py)
        if current > self.peak:
            self.peak = current

    def reset_peak(self) -> None:
        self.peak = self.allocated - self.freed
