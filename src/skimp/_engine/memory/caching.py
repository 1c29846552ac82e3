"""The caching allocator: large blocks that are taken, come back by themselves, and are used again.

Bytes that were used have their pages, so writing to them costs no page faults: filling 382 MiB is 4
to 14 times faster than in a fresh mapping (docs/notes/memory.md).

All blocks lie side by side in one segment of addresses (segments.py), as low as there is room. What
comes back joins its free neighbours, so what four small blocks have left serves a large one, and
what is reserved stays close to what is used.

No lock anywhere. Arrays die anywhere, in the middle of `take` on the same thread too (when the
garbage collector runs there), where a lock would wait for itself. Instead, every change is one step
for other threads and for what a signal handler raises (see ledger.py), and what dies is only noted,
by a method of Python's own deque, which nothing interrupts; whoever comes next takes it back.
A fork therefore needs no care either; its blocks are its own copies.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.memory import allocator
from skimp._engine.memory.ledger import SMALL, Ledger, host
from skimp._engine.memory.moving import move_in, renew
from skimp._engine.memory.segments import Claim, Range, Segment
from skimp._engine.memory.tally import Tally

POOLED: Final = SMALL  # bytes from which a storage's block comes from the pool

Buffer = Any  # writable bytes that are not an ndarray: memoryview, bytearray, mmap
Array = np.ndarray[Any, Any]

STEP: Final = 2 << 20  # large sizes are multiples of this: whole huge pages
SMALLEST_STEP: Final = max(4 << 10, mmap.PAGESIZE)
WASTE: Final = 8  # a block is at most 1/8 larger than what is asked for
SLACK: Final = 1 << 30  # bytes that may always be cached
WINDOW: Final = 8192  # takes over which the demand is remembered: more than a step of training has
LOOSE: Final = 16  # of the demand, one part of so many may be free without a bound
FEW: Final = 4  # a block's pages that may be new where the others move: one part of so many
SCATTERED: Final = 1 << 20  # bytes of small arrays that died: the C library has kept their pages
_HUGE: Final = 1 << 60


@lru_cache(maxsize=4096)
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

    __slots__ = ("claim", "pool")

    claim: Claim
    pool: Pool


@enters_uninterrupted  # or nobody would take the block back
def _ended(lease: Any) -> None:
    """Within a budget: what is cached from now on counts from now on, for small arrays as well.

    One step, which calls nothing: what a signal handler raises in here would be lost.
    """
    ended, ledger = lease.pool._ended, lease.pool._ledger
    ended += (lease,)
    ledger.slack = slack = ledger.slack - lease.claim.asked
    if ledger.ceiling > slack:
        ledger.ceiling = slack


# By their own ids (a reference hashes as what it refers to). At exit they die first, uncalled.
_LEASES: Final[dict[int, _Lease]] = {}


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
        self._leases: Final = Tally()
        self._leased: Final = Tally()
        self._asked: Final = Tally()
        self._ended: Final[deque[_Lease]] = deque()  # whose arrays have died
        self._left: Final[deque[Claim]] = deque()  # by what an exception has interrupted
        self._others_before = 0  # the most since the C library gave pages back
        self.most = 0  # bytes reserved by all owners, where somebody looked: when the pool grows
        self.retries = 0  # times that the system refused and the cache was emptied for it

    rounded = staticmethod(rounded)

    @property
    def leases(self) -> Tally:
        """Arrays that use a block."""
        self._collect()
        return self._leases

    @property
    def leased(self) -> Tally:
        """Their blocks' bytes."""
        self._collect()
        return self._leased

    @property
    def asked(self) -> Tally:
        """The bytes that were asked for, before rounding."""
        self._collect()
        return self._asked

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

    @property
    def rounding(self) -> int:
        """Bytes of blocks in use that nobody asked for."""
        if self._ended or self._left:  # `_collect`, as in `take`: each large block asks twice
            self._take_back()
        leased, asked = self._leased, self._asked
        return leased.allocated - leased.freed - asked.allocated + asked.freed

    # -- taking -----------------------------------------------------------------------------------

    def lend(self, nbytes: int) -> Array:
        """`take` for what no owner is charged with: the ledger counts it as it does rounding."""
        return self.take(nbytes, owned=False)

    def take(self, nbytes: int, zeroed: bool = False, owned: bool = True) -> Array:
        """`rounded(nbytes)` bytes as a flat uint8 array, with anything in them or all zero.

        They go back when no array made from it is left. OutOfMemoryError: the system refused them.
        """
        if self._ended or self._left:
            self._take_back()
        claim = Claim.__new__(Claim)  # whose `__init__` would be one more call for each block
        claim.size = rounded(nbytes)
        if owned:
            claim.asked = nbytes
        segment: Segment | None
        grows = False
        try:
            for segment in self._segments[:]:
                if not segment.take_part(claim):
                    continue
                break
            else:
                segment, grows = None, True  # it may have to go for what is wanted
                self._grow(claim)
            array = np.ndarray((claim.size,), np.uint8, claim.segment.buffer, claim.start)  # type: ignore[union-attr]
            lease = _Lease(array, self._ended.append if self._ledger.budget is None else _ended)
            lease.claim, lease.pool = claim, self
            key = id(lease)
            _LEASES[key] = lease
            leases, leased, asked = self._leases, self._leased, self._asked
            ledger = self._ledger
            claim.counted = True  # one step with the lines below
            leases.allocated = leases.allocated + 1
            leased.allocated = leased.allocated + claim.size
            asked.allocated = asked.allocated + claim.asked
            if ledger.budget is not None and not grows:
                ledger.slack = ledger.slack + claim.asked  # which the pool held
        except BaseException:
            self._left.append(claim)  # one step, also for the next interrupt
            raise
        current = leases.allocated - leases.freed  # each is one step, as in `Tally.rise`
        if current > leases.peak:
            leases.peak = current
        current = asked.allocated - asked.freed
        if current > asked.peak:
            asked.peak = current
        in_use = leased.allocated - leased.freed
        if in_use > leased.peak:
            leased.peak = in_use
        if in_use > self._demand:
            self._demand = in_use
        if leases.allocated % WINDOW == 0:
            self._turn()
        if ledger.budget is not None:
            if grows:
                ledger.look()
            else:
                ledger.aim()
        if zeroed and claim.cold < claim.size:  # what was never used is zero
            allocator.clear(array)
        return array

    def _find(self, claim: Claim) -> bool:
        return any(segment.take(claim) for segment in list(self._segments))

    def attend(self) -> None:
        """A budget has begun: also what is in use already tells it of its end."""
        for key, lease in list(_LEASES.items()):
            array = lease()
            if array is not None and lease.pool is self:
                new = _Lease(array, _ended)
                new.claim, new.pool = lease.claim, self
                _LEASES[id(new)] = new
                _LEASES.pop(key, None)
        self._ledger.look()  # what has died since it began has told nobody

    def _grow(self, claim: Claim) -> None:
        """Bytes that have no pages yet, beside such as have; or free pages from elsewhere."""
        size = claim.size
        allowed = self._allowed(size)
        lacking = self.held.current + size - allowed
        if lacking <= 0 and self._is_scattered(size):
            lacking = size - size // FEW
        if self._move_in(claim, lacking):
            return
        self.trim(allowed - size)
        limit = self._ledger.bound
        if limit is not None and self.held.current + size > limit - self._others():
            raise self._ledger.refusal(size, limit=limit)  # what is cached here can't be given back
        if limit is not None:
            self._trim_others(size)
        while not self._find(claim):
            segment = self._map(size)
            segments = self.segments
            segments.allocated = segments.allocated + 1  # one step with the next line
            self._segments.append(segment)
            segments.rise()
        self.measure()

    def _move_in(self, claim: Claim, lacking: int) -> bool:
        """Have what is to be given up be pages of the block; False: there is nothing, or it can't
        be moved.
        """
        if lacking <= 0 or not self._segments:
            return False
        more = max(lacking - claim.size, 0)
        self.trim(self.held.current - more)
        try:
            if not move_in(self._segments[0], claim, lacking - more, self._left):
                return False
        finally:
            self._collect()
        if self._ledger.bound is not None:
            self._trim_others()
        self.measure()
        return True

    def renew(self) -> None:
        """Give back what is free and was moved often: a moment at which much is free."""
        self._collect()
        try:
            for segment in list(self._segments):
                renew(segment, self._left)
        finally:
            self._collect()

    def _map(self, size: int) -> Segment:
        if size <= self._memory:
            buffer = self._spare(self._memory)
            if buffer is not None:
                size = self._memory // SMALLEST_STEP * SMALLEST_STEP
                segment = Segment(buffer, size, self.held)
                segment.seams.append(allocator.SMALL_PAGES)
                return segment
        try:
            return Segment(self._raw(size), size, self.held)
        except (MemoryError, OSError, OverflowError):
            return Segment(self._map_again(size), size, self.held)

    def _map_again(self, size: int) -> Buffer:
        self.retries = self.retries + 1
        self._ledger.relieve()
        self.empty_cache()
        try:
            return self._raw(size)
        except (MemoryError, OSError, OverflowError) as error:
            raise self._ledger.refusal(size) from error

    # -- giving back ------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Take back the blocks of arrays that have died, and what an exception left."""
        if self._ended or self._left:
            self._take_back()

    def _take_back(self) -> None:
        ended, left = self._ended, self._left
        leases, leased, asked = self._leases, self._leased, self._asked
        try:
            while left or ended:
                lease = None if left else ended[0]
                claim = left[0] if lease is None else lease.claim
                if claim.counted:  # one step with the lines below; not if it was put back before
                    claim.counted = False
                    leases.freed = leases.freed + 1
                    leased.freed = leased.freed + claim.size
                    asked.freed = asked.freed + claim.asked
                segment = claim.segment
                if segment is not None:
                    segment.put(claim)
                if lease is None:
                    left.remove(claim)
                else:
                    _LEASES.pop(id(lease), None)
                    ended.remove(lease)
        except (IndexError, ValueError):  # another thread was faster: it did that one
            return self._collect()

    def empty_cache(self) -> int:
        """Give all cached blocks back to the system; returns how many bytes that were."""
        allocator.trim()
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
        limit = self._ledger.bound
        machine = self._memory - self._memory // 4
        return min(allowed, machine if limit is None else min(limit - self._others(), machine))

    def _is_scattered(self, more: int) -> bool:
        """Whether with `more` so much is free, without a bound, that pages had better move."""
        demand = max(self._demand, self._demand_before, self.in_use + more)
        free = self.held.current + more - demand
        return free > demand // LOOSE and self._ledger.bound is None and allocator.moves_across()

    def _others(self) -> int:
        """Bytes that owners have from elsewhere, and that a limit bounds too."""
        if self._ended or self._left:
            self._take_back()
        asked, ledger = self._asked, self._ledger
        more = ledger.total - ledger.freed - asked.allocated + asked.freed
        return more if more > 0 else 0

    @property
    def overhead(self) -> int:
        """Bytes that are held from the system and that nobody asked for: rounding, the cache."""
        if self._ended or self._left:
            self._take_back()
        held, asked, ledger = self.held, self._asked, self._ledger
        use = asked.allocated - asked.freed
        others = ledger.total - ledger.freed - use
        if others > self._others_before:
            self._others_before = others
        more = held.allocated - held.freed - use
        return more if more > 0 else 0

    def shrink(self) -> None:
        """Give cached bytes back until what is reserved is within the ledger's bound."""
        limit = self._ledger.bound
        if limit is not None:
            self.trim(limit - self._others())
            self.measure()
            self._trim_others()

    def _trim_others(self, more: int = 0) -> None:
        """Give back the pages of small arrays that have died, once there are many, and beyond the
        bound with what the pool holds, and `more`.
        """
        others, limit = self._others(), self._ledger.bound
        self._others_before = before = max(self._others_before, others)
        if limit is not None and self.held.current + more + before <= limit:
            return
        if before - others >= SCATTERED:
            self._others_before = others
            allocator.trim()

    def measure(self) -> int:
        """Bytes that are held from the system and that owners have from elsewhere; the most that
        this has found is `most`.
        """
        reserved = self.held.current + self._others()
        if reserved > self.most:
            self.most = reserved
        return reserved

    def _release(self, nbytes: int) -> int:
        """Release at least this many cached bytes, as far as there are any; returns how many."""
        self._collect()
        released = 0
        for segment in reversed(list(self._segments)):
            if released < nbytes:
                released += self._empty(segment, nbytes - released)
        return released

    def _empty(self, segment: Segment, nbytes: int) -> int:
        """Release bytes of one segment: pages from its end, or all of it if nothing uses it."""
        released = 0
        nbytes = -(-nbytes // SMALL) * SMALL
        for found in reversed(list(segment.ranges)):
            if not found.warm or released >= nbytes:
                continue
            gone = self._discard(segment, found, nbytes - released)
            if gone is None:
                break
            released += gone
        warm = segment.close(also_warm=released < nbytes)
        if warm is not None or segment.closed:
            self._forget(segment)
        return released + (warm or 0)

    def _discard(self, segment: Segment, found: Range, nbytes: int) -> int | None:
        """Give pages at the end of a free range back; returns how many bytes, None if that can't
        be.
        """
        claim = Claim(nbytes)
        try:
            if not segment.take_upper(found, claim):
                return 0  # somebody else has it by now
            if not allocator.discard(segment.buffer, claim.start, claim.start + claim.size):
                return None
            held = self.held
            held.freed = held.freed + claim.size  # one step with the next line
            claim.warm = False
            return claim.size
        finally:
            self._left.append(claim)
            self._collect()

    def _forget(self, segment: Segment) -> None:
        segments = self.segments
        with contextlib.suppress(ValueError):  # somebody else did
            self._segments.remove(segment)
            segments.freed = segments.freed + 1

    # -- looking ----------------------------------------------------------------------------------

    def blocks(self) -> Iterator[int]:
        """Sizes of what is cached, each as large as its neighbours let it be."""
        self._collect()
        for segment in list(self._segments):
            yield from [end - start for start, end, warm in list(segment.ranges) if warm]

    def reset_peaks(self) -> None:
        for tally in (self.segments, self.held, self.leases, self.leased, self.asked):
            tally.reset_peak()
        self.most = 0


pool: Final = Pool()
host.backing = pool
allocator.keep_pages()
