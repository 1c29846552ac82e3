"""What was measured, as plain data: bytes are bytes, times are seconds since the start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the program and the op that it called. `line` is 0 where no line is known."""

    file: str
    line: int
    op: str


@dataclass(frozen=True, slots=True)
class Held:
    """What one place had allocated and not yet given back."""

    place: Place
    bytes: int
    allocations: int


@dataclass(frozen=True, slots=True)
class Copied:
    """What one place copied for one reason."""

    place: Place
    reason: str
    bytes: int
    times: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The first moment with the most bytes allocated. `held` adds up to `bytes`, largest first."""

    bytes: int
    seconds: float
    place: Place
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Where the memory of one program went."""

    program: str
    seconds: float
    peak: Peak
    allocations: int
    allocated: int  # bytes, over all allocations
    live: int  # bytes, at the end
    unwritten: int  # bytes of results that deferral never wrote to memory
    copies: tuple[Copied, ...]  # largest first

    @property
    def copied(self) -> int:
        """Bytes, over all copies."""
        return sum(copy.bytes for copy in self.copies)
