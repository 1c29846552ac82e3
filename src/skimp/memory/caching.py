"""The caching allocator: large blocks that are taken, come back by themselves, and are used again.

A block that was used has its pages, so writing to it costs no page faults: filling 382 MiB is 4 to
14 times faster than in a fresh mapping (docs/notes/memory.md).

No lock anywhere. Arrays die anywhere, in the middle of `take` on the same thread too (when the
garbage collector runs there), where a lock would wait for itself. Instead, every change is one step
for other threads (see ledger.py): an element in or out of a deque, or a statement that reads and
stores counters. A fork therefore needs no care either; its blocks are its own copies.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import numpy as np

from skimp.memory import allocator
from skimp.memory.ledger import Ledger, host
from skimp.memory.tally import Tally

Buffer = Any  # writable bytes that are not an ndarray: memoryview, bytearray, mmap
Array = np.ndarray[Any, Any]

STEP: Final = 2 << 20  # large sizes are multiples of this: whole huge pages
SMALLEST_STEP: Final = 4 << 10
WASTE: Final = 8  # a block is at most 1/8 larger than what it is used for
SLACK: Final = 1 << 30  # bytes that may always be cached
WINDOW: Final = 8192  # takes over which the demand is remembered: more than a step of training has
_HUGE: Final = 1 << 60


def rounded(nbytes: int) -> int:
    """The size class: at most 1/8 more than `nbytes`, and a multiple of 2 MiB from 16 MiB up."""
    power = 1 << max(nbytes - 1, 1).bit_length() - 1  # the largest one below nbytes
    step = min(max(power // WASTE, SMALLEST_STEP), STEP)
    return max(-(-nbytes // step), 1) * step


class Block:
    """A piece of raw memory. `used`: its bytes may be other than zero."""

    __slots__ = ("buffer", "freed_at", "size", "used")

    def __init__(self, buffer: Buffer, size: int) -> None:
        self.buffer: Final = buffer
        self.size: Final = size
        self.used = False
        self.freed_at = 0


class _Lease(weakref.ref[Array]):
    """Waits for the death of the array through which a block is used, and gives the block back.

    The array is a plain one over raw memory. NumPy keeps it as `base` of every view and every view
    of a view, because it is the last array of the chain: it dies when nothing can reach the bytes.
    A plain array is also unknown to the garbage collector. An object with `__del__` would be
    finalized together with a cycle that reaches it, before other finalizers of the cycle, which may
    still use the bytes.
    """

    __slots__ = ("asked", "block", "pool", "size")

    block: Block
    pool: Pool
    size: int
    asked: int


# By their own ids (a reference hashes as what it refers to). At exit they die first, uncalled.
_LEASES: Final[dict[int, _Lease]] = {}


def _ended(lease: weakref.ref[Array]) -> None:
    assert isinstance(lease, _Lease)
    del _LEASES[id(lease)]
    lease.pool.give_back(lease)


class Pool:
    """Blocks by size class. `raw(nbytes)` gives fresh zeroed bytes, which die with their last
    reference.

    reserved = in_use + cached, where `in_use` counts whole blocks, and a block may be up to 1/8
    larger than the array that uses it.
    """

    def __init__(
        self,
        raw: Callable[[int], Buffer] = allocator.fresh,
        ledger: Ledger = host,
        total: Callable[[], int] = allocator.total_memory,
    ) -> None:
        self._raw: Final = raw
        self._ledger: Final = ledger
        self._total: Final = total
        self._memory = 0  # what `total` said; 0: not asked yet
        self._free: dict[int, deque[Block]] = {}
        self._sizes: tuple[int, ...] = ()  # the keys of `_free`, in order
        self._clock: Final = count(1)
        self._demand = self._demand_before = (
            0  # the most in use, in this window of takes and the last
        )
        self.segments: Final = Tally()  # blocks that are held from the system
        self.held: Final = Tally()  # their bytes
        self.leases: Final = Tally()  # arrays that use a block
        self.leased: Final = Tally()  # their bytes
        self.asked: Final = Tally()  # the bytes that were asked for, before rounding
        self.used: Final = Tally()  # bytes of the blocks in use
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
        return self.used.current

    @property
    def cached(self) -> int:
        """Bytes that are held from the system and not in use."""
        return self.held.current - self.used.current

    # -- taking -----------------------------------------------------------------------------------

    def take(self, nbytes: int) -> Array:
        """`rounded(nbytes)` bytes with anything in them, as a flat uint8 array.

        They go back when no array made from it is left. OutOfMemoryError: the system refused them.
        """
        size = rounded(nbytes)
        return self._lease(self._reuse(size) or self._map(size), size, nbytes)

    def take_zeroed(self, nbytes: int) -> Array:
        """The same, all zero; a fresh block is anyway."""
        size = rounded(nbytes)
        block = self._reuse(size) or self._map(size)
        used = block.used
        array = self._lease(block, size, nbytes)
        if used:
            allocator.clear(array)
        return array

    def _lease(self, block: Block, size: int, asked: int) -> Array:
        array = np.ndarray((size,), np.uint8, block.buffer)
        lease = _Lease(array, _ended)
        lease.block, lease.pool, lease.size, lease.asked = block, self, size, asked
        _LEASES[id(lease)] = lease
        block.used = True
        self.leases.add(1)
        self.leased.add(size)
        self.asked.add(asked)
        self.used.add(block.size)
        if self.used.current > self._demand:
            self._demand = self.used.current
        if self.leases.allocated % WINDOW == 0:
            self._turn()
        return array

    def _reuse(self, size: int) -> Block | None:
        """The cached block that wastes least, and of its size the one used last."""
        exact = self._free.get(size)
        if exact:
            block = _pop(exact)
            if block is not None:
                return block
        sizes = self._sizes
        most = size + size // WASTE
        for i in range(bisect_left(sizes, size), len(sizes)):
            if sizes[i] > most:
                break
            block = _pop(self._free[sizes[i]])
            if block is not None:
                return block
        return None

    def _map(self, size: int) -> Block:
        self.trim(self._allowed(size) - size)
        try:
            buffer = self._raw(size)
        except (MemoryError, OSError, OverflowError):
            buffer = self._map_again(size)
        self.held.add(size)
        self.segments.add(1)
        return Block(buffer, size)

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
        self.used.remove(lease.block.size)
        self._keep(lease.block)

    def _keep(self, block: Block) -> None:
        block.freed_at = next(self._clock)
        self._free.setdefault(block.size, deque()).append(block)
        if len(self._sizes) != len(self._free):
            self._sizes = tuple(sorted(self._free))

    def empty_cache(self) -> int:
        """Give all cached blocks back to the system; returns how many bytes that were."""
        return self._release(_HUGE)

    def _turn(self) -> None:
        """The end of a window: what was only needed before it need not be kept."""
        self._demand, self._demand_before = self.in_use, self._demand
        self.trim(self._allowed(0))

    def trim(self, reserved: int) -> None:
        """Release cached blocks, the longest unused first, until `reserved` bytes are left."""
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
        while released < nbytes:
            block = self._oldest()
            if block is None:
                break
            self.held.remove(block.size)
            self.segments.remove(1)
            released += block.size
        return released

    def _oldest(self) -> Block | None:
        """Take the longest unused block out of the cache."""
        while True:
            queues = [q for q in list(self._free.values()) if q]
            if not queues:
                return None
            block = _popleft(min(queues, key=_age))
            if block is not None:
                return block

    # -- looking ----------------------------------------------------------------------------------

    def blocks(self) -> Iterator[int]:
        """Sizes of the cached blocks."""
        for queue in list(self._free.values()):
            yield from [block.size for block in list(queue)]

    def reset_peaks(self) -> None:
        for tally in (self.segments, self.held, self.leases, self.leased, self.asked, self.used):
            tally.reset_peak()


def _age(queue: deque[Block]) -> int:
    try:
        return queue[0].freed_at
    except IndexError:  # another thread took it
        return _HUGE


def _pop(queue: deque[Block]) -> Block | None:
    try:
        return queue.pop()
    except IndexError:  # it was empty, or another thread took the last one
        return None


def _popleft(queue: deque[Block]) -> Block | None:
    try:
        return queue.popleft()
    except IndexError:  # another thread took it
        return None


pool: Final = Pool()
