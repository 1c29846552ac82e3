"""The caching allocator: large blocks that are taken, come back by themselves, and are used again.

Bytes that were used have their pages, so writing to them costs no page faults: filling 382 MiB is 4
to 14 times faster than in a fresh mapping (docs/notes/memory.md).

All blocks lie side by side in one segment of addresses (segments.py), as low as there is room. What
comes back joins its free neighbours, so what four small blocks have left serves a large one, and
what is reserved stays close to what is used.

No lock anywhere. Arrays die anywhere, in the middle of `take` on the same thread too (when the
garbage collector runs there), where a lock would wait for itself. Instead, every change is one step
for other threads (see ledger.py). A fork therefore needs no care either; its blocks are its own
copies.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from skimp._engine.memory import allocator
from skimp._engine.memory.ledger import Ledger, host
from skimp._engine.memory.segments import Segment
from skimp._engine.memory.tally import Tally

Buffer = Any  # writable bytes that are not an ndarray: memoryview, bytearray, mmap
Array = np.ndarray[Any, Any]

STEP: Final = 2 << 20  # large sizes are multiples of this: whole huge pages
SMALLEST_STEP: Final = max(4 << 10, mmap.PAGESIZE)
WASTE: Final = 8  # a block is at most 1/8 larger than what is asked for
SLACK: Final = 1 << 30  # bytes that may always be cached
WINDOW: Final = 8192  # takes over which the demand is remembered: more than a step of training has
_HUGE: Final = 1 << 60


def rounded(nbytes: int) -> int:
    """The size class: at most 1/8 more than `nbytes`, and a multiple of 2 MiB from 16 MiB up."""
    power = 1 << max(nbytes - 1, 1).bit_length() - 1  # the largest one below nbytes
    step = min(max(power // WASTE, SMALLEST_STEP), STEP)
    return max(-(-nbytes // step), 1) * step


class _Lease(weakref.ref[Array]):
    """Waits for the death of the array through which a block is used, and gives the block back.

    The array is a plain one over raw memory. NumPy keeps it as `base` of every view and every view
    of a view, because it is the last array of the chain: it dies when nothing can reach the bytes.
    A plain array is also unknown to the garbage collector. An object with `__del__` would be
    finalized together with a cycle that reaches it, before other finalizers of the cycle, which may
    still use the bytes.
    """

    __slots__ = ("asked", "pool", "segment", "size", "start")

    pool: Pool
    segment: Segment
    start: int
    size: int
    asked: int


Place = tuple[Segment, int, int]  # where a block begins, and how many of its bytes were never used

# By their own ids (a reference hashes as what it refers to). At exit they die first, uncalled.
_LEASES: Final[dict[int, _Lease]] = {}


def _ended(lease: weakref.ref[Array]) -> None:
    assert isinstance(lease, _Lease)
    del _LEASES[id(lease)]
    lease.pool.give_back(lease)


class Pool:
    """Blocks in segments. `raw(nbytes)` gives fresh zeroed bytes, which die with their last
    reference; `spare(nbytes)` gives the same as addresses only, or None where there is no such
    thing. Then a segment is as large as the block that it was made for.

    reserved = in_use + cached: bytes that have pages (to the system, which counts whole pages of 2
    MiB, up to that much more for each segment).
    """

    def __init__(
        self,
        raw: Callable[[int], Buffer] = allocator.fresh,
        ledger: Ledger = host,
        total: Callable[[], int] = allocator.total_memory,
        spare: Callable[[int], Buffer | None] = allocator.reserve,
    ) -> None:
        self._raw: Final = raw
        self._spare: Final = spare
        self._ledger: Final = ledger
        self._total: Final = total
        self._memory = 0  # what `total` said; 0: not asked yet
        self._segments: Final[list[Segment]] = []
        # the most in use, in this window of takes and the last
        self._demand = self._demand_before = 0
        self.segments: Final = Tally()  # that are held from the system
        self.held: Final = Tally()  # bytes of them that have pages
        self.leases: Final = Tally()  # arrays that use a block
        self.leased: Final = Tally()  # their bytes
        self.asked: Final = Tally()  # the bytes that were asked for, before rounding
        self.retries = 0  # times that the system refused and the cache was emptied for it

    rounded = staticmethod(rounded)

    @property
    def reserved(self) -> int:
        """Bytes that are held from the system."""
        return self.held.current

    @property
    def peak_reserved(self) -> int:
        """The most bytes that were."""
        return self.held.peak

    @property
    def in_use(self) -> int:
        """Bytes of blocks that arrays use."""
        return self.leased.current

    @property
    def cached(self) -> int:
        """Bytes that are held from the system and not in use."""
        return self.held.current - self.leased.current

    # -- taking -----------------------------------------------------------------------------------

    def take(self, nbytes: int) -> Array:
        """`rounded(nbytes)` bytes with anything in them, as a flat uint8 array.

        They go back when no array made from it is left. OutOfMemoryError: the system refused them.
        """
        return self._take(nbytes)[0]

    def take_zeroed(self, nbytes: int) -> Array:
        """The same, all zero; what was never used is anyway."""
        array, cold = self._take(nbytes)
        if cold < array.nbytes:
            allocator.clear(array)
        return array

    def _take(self, nbytes: int) -> tuple[Array, int]:
        """An array, and how many of its bytes were never used."""
        size = rounded(nbytes)
        segment, start, cold = self._find_warm(size) or self._grow(size)
        if cold:
            self.held.add(cold)
        return self._lease(segment, start, size, nbytes), cold

    def _find_warm(self, size: int) -> Place | None:
        for segment in list(self._segments):
            start = segment.take_warm(size)
            if start is not None:
                return segment, start, 0
        return None

    def _find(self, size: int) -> Place | None:
        for segment in list(self._segments):
            found = segment.take(size)
            if found is not None:
                return segment, *found
        return None

    def _lease(self, segment: Segment, start: int, size: int, asked: int) -> Array:
        array = np.ndarray((size,), np.uint8, segment.buffer, start)
        lease = _Lease(array, _ended)
        lease.segment, lease.start, lease.size = segment, start, size
        lease.asked, lease.pool = asked, self
        _LEASES[id(lease)] = lease
        self.leases.add(1)
        self.leased.add(size)
        self.asked.add(asked)
        if self.leased.current > self._demand:
            self._demand = self.leased.current
        if self.leases.allocated % WINDOW == 0:
            self._turn()
        return array

    def _grow(self, size: int) -> Place:
        """Bytes that have no pages yet, beside such as have."""
        self.trim(self._allowed(size) - size)
        place = self._find(size)
        if place is not None:
            return place
        segment = self._map(size)
        found = segment.take(size)
        assert found is not None  # nobody else knows it
        self._segments.append(segment)
        self.segments.add(1)
        return segment, *found

    def _map(self, size: int) -> Segment:
        if size <= self._memory:
            buffer = self._spare(self._memory)
            if buffer is not None:
                return Segment(buffer, self._memory // SMALLEST_STEP * SMALLEST_STEP)
        try:
            return Segment(self._raw(size), size)
        except (MemoryError, OSError, OverflowError):
            return Segment(self._map_again(size), size)

    def _map_again(self, size: int) -> Buffer:
        self.retries = self.retries + 1
        self._ledger.relieve()
        self.empty_cache()
        try:
            return self._raw(size)
        except (MemoryError, OSError, OverflowError) as error:
            raise self._ledger.refusal(size) from error

    # -- giving back ------------------------------------------------------------------------------

    def give_back(self, lease: _Lease) -> None:
        """An array died. Runs anywhere, inside any other method too."""
        self.leases.remove(1)
        self.leased.remove(lease.size)
        self.asked.remove(lease.asked)
        lease.segment.put(lease.start, lease.start + lease.size, True)

    def empty_cache(self) -> int:
        """Give all cached blocks back to the system; returns how many bytes that were."""
        return self._release(_HUGE)

    def _turn(self) -> None:
        """The end of a window: what was only needed before it need not be kept."""
        self._demand, self._demand_before = self.in_use, self._demand
        self.trim(self._allowed(0))

    def trim(self, reserved: int) -> None:
        """Release cached bytes, those at the highest addresses first, until `reserved` are left."""
        if self.reserved > reserved:
            self._release(self.reserved - reserved)

    def _allowed(self, more: int) -> int:
        """Bytes that may be reserved once `more` are mapped; what is in use may exceed them."""
        if not self._memory:
            self._memory = self._total()
        in_use = self.in_use + more
        demand = max(self._demand, self._demand_before, in_use)
        allowed = max(in_use + min(SLACK, self._memory // 8), demand + demand // 4)
        limit = self._ledger.limit
        machine = self._memory - self._memory // 4
        return min(allowed, machine if limit is None else min(limit, machine))

    def _release(self, nbytes: int) -> int:
        """Release at least this many cached bytes, as far as there are any; returns how many."""
        released = 0
        for segment in reversed(list(self._segments)):
            if released < nbytes:
                released += self._empty(segment, nbytes - released)
        return released

    def _empty(self, segment: Segment, nbytes: int) -> int:
        """Release bytes of one segment: pages from its end, or all of it if nothing uses it."""
        released = 0
        nbytes = -(-nbytes // STEP) * STEP
        for found in reversed(list(segment.ranges)):
            if not found.warm or released >= nbytes:
                continue
            taken = segment.take_upper(found, nbytes - released)
            if taken is None:
                continue  # somebody else has it by now
            gone = False
            try:
                gone = allocator.discard(segment.buffer, taken.start, taken.end)
                if gone:
                    self.held.remove(taken.end - taken.start)
                    released += taken.end - taken.start
            finally:
                segment.put(taken.start, taken.end, not gone)
            if not gone:
                break
        warm = segment.take_all(also_warm=released < nbytes)
        if warm is None:
            return released
        self._segments.remove(segment)
        self.segments.remove(1)
        self.held.remove(warm)
        return released + warm

    # -- looking ----------------------------------------------------------------------------------

    def blocks(self) -> Iterator[int]:
        """Sizes of what is cached, each as large as its neighbours let it be."""
        for segment in list(self._segments):
            yield from [end - start for start, end, warm in list(segment.ranges) if warm]

    def reset_peaks(self) -> None:
        for tally in (self.segments, self.held, self.leases, self.leased, self.asked):
            tally.reset_peak()


pool: Final = Pool()
