"""What the budget did: what went, what came back and how, and the time that it took."""

from __future__ import annotations

from typing import Final, NamedTuple


class Again(NamedTuple):
    """What one op's results cost to make again."""

    times: int
    nbytes: int
    seconds: float


class Counts:
    """Sums since the beginning, or since `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count from here on."""
        self.evictions = 0  # all of them: dropped, written, or written before
        self.evicted = 0  # bytes
        self.dropped = 0  # bytes of those that are made again
        self.written = 0  # bytes to the file
        self.was_read = 0  # and from it
        self.again: dict[str, Again] = {}  # by op
        self.remade_bytes = 0
        self.remade_seconds = 0.0
        self.spill_seconds = 0.0
        self.search_seconds = 0.0
        self.seconds = 0.0  # of all that; what an op's time is measured without

    def went(self, nbytes: int, dropped: bool) -> None:
        self.evictions += 1
        self.evicted += nbytes
        if dropped:
            self.dropped += nbytes

    def remade(self, op: str, nbytes: int, seconds: float) -> None:
        times, before, so_far = self.again.get(op, (0, 0, 0.0))
        self.again[op] = Again(times + 1, before + nbytes, so_far + seconds)
        self.remade_bytes += nbytes
        self.remade_seconds += seconds


counts: Final = Counts()
