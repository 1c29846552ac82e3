"""What the budget did: what went, what came back and how, by op and line, and the time it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from skimp._engine.memory.call_site import Site

MADE: Final = "made"
READ: Final = "read"
WRITTEN: Final = "written"
EACH: Final = 2e-4  # seconds for which Python has a storage noted, go and come back


class Again(NamedTuple):
    """What was done with the results of an op in a line, in one way: made, read or written."""

    way: str
    op: str
    filename: str
    lineno: int  # 0: nobody knows
    times: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What a program held within a budget and what that took: all that a report tells.

    `again` has the sums by way, op and line, what took longest first.
    """

    budget: int | None
    peak: int  # bytes that tensors held at most
    seconds: float  # of the program, by the processor
    spent: float  # of them on taking bytes away and having them back
    evictions: int
    evicted: int  # bytes
    dropped: int  # bytes of those that were not written, to be made again
    rematerialized: int
    rematerialized_seconds: float
    written: int
    read: int
    spill_seconds: float
    search_seconds: float
    again: tuple[Again, ...]
    beyond: int = 0  # bytes above the budget at most, of an op's scratch memory


class Counts:
    """Sums since the beginning, or since `reset`."""

    def __init__(self) -> None:
        self.bringing = 0  # storages that are being had back now, because of each other
        self.brought = 0  # bytes that were allocated for that
        self.reset()

    def reset(self) -> None:
        """Count from here on."""
        self.evictions = 0  # all of them: dropped, written, or written before
        self.evicted = 0  # bytes
        self.dropped = 0  # bytes of those that are made again
        self.written = 0  # bytes to the file
        self.was_read = 0  # and from it
        self._again: dict[tuple[str, str, Site | None], tuple[int, int, float]] = {}
        self.rematerialized_bytes = 0
        self.rematerialized_seconds = 0.0
        self.usual_seconds = 0.0  # that the same ops take where nothing else has the processor
        self.spill_seconds = 0.0
        self.search_seconds = 0.0
        self.beyond = 0  # bytes above the budget at most, of a kernel for which nothing could go
        self.seconds = 0.0  # of all that; what an op's time is measured without

    @property
    def moved(self) -> int:
        """Grows whenever bytes go or come."""
        return self.evicted + self.was_read + self.rematerialized_bytes

    def went(self, nbytes: int, dropped: bool) -> None:
        self.evictions += 1
        self.evicted += nbytes
        if dropped:
            self.dropped += nbytes

    def exceeded(self, nbytes: int) -> None:
        """A kernel's scratch memory was had so many bytes above the budget."""
        self.beyond = max(self.beyond, nbytes)

    def rematerialized(self, op: str, site: Site | None, nbytes: int, seconds: float) -> None:
        """An op was run again, as the line at `site` did."""
        self._add(MADE, op, site, nbytes, seconds)
        self.rematerialized_bytes += nbytes
        self.rematerialized_seconds += seconds

    @property
    def spent(self) -> float:
        """Seconds of all that, as if nothing else had had the processor. Without searches: where
        the same goes again there are none.
        """
        return self.usual_seconds + self.spill_seconds + EACH * self.evictions

    def read(self, op: str, site: Site | None, nbytes: int, seconds: float) -> None:
        """Bytes that a line made were read back."""
        self._add(READ, op, site, nbytes, seconds)
        self.was_read += nbytes
        self.spill_seconds += seconds

    def wrote(self, op: str, site: Site | None, nbytes: int, seconds: float) -> None:
        """Bytes that a line made were written."""
        self._add(WRITTEN, op, site, nbytes, seconds)
        self.written += nbytes
        self.spill_seconds += seconds

    def _add(self, way: str, op: str, site: Site | None, nbytes: int, seconds: float) -> None:
        key = way, op, site
        times, before, so_far = self._again.get(key, (0, 0, 0.0))
        self._again[key] = times + 1, before + nbytes, so_far + seconds

    @property
    def again(self) -> tuple[Again, ...]:
        """The sums by way, op and line, what took longest first. Whose recipe is not known has the
        op that the line called, as have those whose op has no public name.
        """
        sums: dict[tuple[str, str, str, int], tuple[int, int, float]] = {}
        for (way, op, site), (times, nbytes, seconds) in self._again.items():
            file, line, called = site or ("", 0, "")
            public = op if op[:1] not in ("", "_") else called or op
            before = sums.get((way, public, file, line), (0, 0, 0.0))
            added = times + before[0], nbytes + before[1], seconds + before[2]
            sums[way, public, file, line] = added
        found = [Again(*key, *added) for key, added in sums.items()]
        return tuple(sorted(found, key=lambda one: -one.seconds))


counts: Final = Counts()
