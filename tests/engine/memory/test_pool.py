"""The caching allocator: sizes, reuse, when a block comes back, what goes to the system."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from skimp._engine.memory import allocator
from skimp._engine.memory.caching import SLACK, STEP, WASTE, WINDOW, Pool, rounded
from skimp._engine.memory.ledger import Ledger
from skimp.errors import OutOfMemoryError
from tests.support.books import on_threads

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class System:
    """A raw allocator that counts what it has given and not got back."""

    def __init__(self, capacity: int = 1 << 60) -> None:
        self.capacity = capacity
        self.given = 0
        self.calls = 0

    def __call__(self, nbytes: int) -> Any:
        self.calls += 1
        if self.given + nbytes > self.capacity:
            raise MemoryError
        self.given += nbytes
        chunk = Chunk(nbytes)
        weakref.finalize(chunk, self._back, nbytes)
        return chunk

    def _back(self, nbytes: int) -> None:
        self.given -= nbytes


class Chunk(bytearray):
    """Bytes whose death can be observed."""


def small_pool(capacity: int = 1 << 60, total: int = 64 * GIB) -> tuple[Pool, System]:
    """A pool on a system without spare addresses: a segment is what it was made for."""
    system = System(capacity=capacity)
    return Pool(system, Ledger("test"), lambda: total, lambda nbytes: None), system


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "size"),
    [
        (1, 4 * KIB),
        (MIB, MIB),
        (MIB + 1, MIB + 128 * KIB),
        (15 * MIB + 1, 16 * MIB),
        (16 * MIB + 1, 18 * MIB),
        (400_000_000, 382 * MIB),
        (10 * GIB, 10 * GIB),
    ],
)
def test_sizes(nbytes: int, size: int) -> None:
    assert rounded(nbytes) == size


@given(st.integers(1, 1 << 44))
def test_rounding_wastes_at_most_an_eighth(nbytes: int) -> None:
    size = rounded(nbytes)
    assert nbytes <= size
    assert rounded(size) == size
    assert size - nbytes < 4 * KIB or (size - nbytes) * WASTE <= nbytes
    assert size % STEP == 0 or size < 16 * MIB


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_rounding_is_monotonic(a: int, b: int) -> None:
    assert (a <= b) <= (rounded(a) <= rounded(b))


# -- reuse ----------------------------------------------------------------------------------------


def test_a_block_is_used_again() -> None:
    pool, system = small_pool()
    a = pool.take(MIB)
    where = a.ctypes.data
    assert (pool.in_use, pool.cached, pool.reserved) == (MIB, 0, MIB)
    del a
    assert (pool.in_use, pool.cached, pool.reserved) == (0, MIB, MIB)
    b = pool.take(MIB - 100)
    assert b.ctypes.data == where
    assert b.nbytes == MIB
    assert system.calls == 1


def test_a_part_of_what_is_free_will_do() -> None:
    pool, system = small_pool()
    del_later = pool.take(16 * MIB)
    del del_later
    a = pool.take(9 * MIB)
    assert (pool.leased.current, pool.in_use, system.calls) == (9 * MIB, 9 * MIB, 1)
    b = pool.take(MIB)
    c = pool.take(MIB)
    assert list(pool.blocks()) == [5 * MIB]
    del b
    assert sorted(pool.blocks()) == [MIB, 5 * MIB]
    del c
    assert list(pool.blocks()) == [7 * MIB]
    del a
    assert list(pool.blocks()) == [16 * MIB]
    assert system.calls == 1


def test_the_lowest_place_is_used_first() -> None:
    pool, _ = small_pool()
    whole = pool.take(16 * MIB)
    start = whole.ctypes.data
    del whole
    a, b, c = pool.take(4 * MIB), pool.take(4 * MIB), pool.take(4 * MIB)
    assert [x.ctypes.data - start for x in (a, b, c)] == [0, 4 * MIB, 8 * MIB]
    del a
    assert pool.take(2 * MIB).ctypes.data == start
    del b, c


def test_zeroed_blocks_are_zero_also_when_they_were_used() -> None:
    pool, _ = small_pool()
    a = pool.take(MIB, zeroed=True)
    assert not a.any()
    a.fill(255)
    del a
    b = pool.take(MIB, zeroed=True)
    assert pool.segments.allocated == 1
    assert not b.any()


def test_empty_cache_gives_everything_unused_back() -> None:
    pool, system = small_pool()
    a, b = pool.take(2 * MIB), pool.take(MIB)
    del b
    assert pool.empty_cache() == MIB
    assert pool.empty_cache() == 0
    assert (pool.reserved, pool.cached, system.given) == (2 * MIB, 0, 2 * MIB)
    del a
    assert pool.empty_cache() == 2 * MIB
    assert system.given == 0
    assert (pool.segments.allocated, pool.segments.freed, pool.peak_reserved) == (2, 2, 3 * MIB)


# -- when a block comes back ----------------------------------------------------------------------


class Interface:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


VIEWS: dict[str, Callable[[Any], object]] = {
    "buffer": lambda a: np.ndarray((4, 4), np.float32, a, 64, (32, 4)),
    "frombuffer": lambda a: np.frombuffer(a, np.int16),
    "slice": lambda a: a[5:9],
    "slice of a slice": lambda a: a[5:90][::2][1:],
    "element": lambda a: a[3, ...],
    "view of a dtype": lambda a: a.view(np.complex128)[2:],
    "reshape": lambda a: a.reshape(2, -1).T,
    "real part": lambda a: a.view(np.complex64).real,
    "as_strided": lambda a: np.lib.stride_tricks.as_strided(a, (3, 3), (0, 1)),
    "broadcast": lambda a: np.broadcast_to(a[:1], (5, 5)),
    "subclass": lambda a: a.view(np.recarray),
    "view of a subclass": lambda a: a.view(np.recarray).view(np.ndarray)[1:],
    "memoryview": lambda a: memoryview(a)[3:],
    "array of a memoryview": lambda a: np.asarray(memoryview(a))[1:],
    "array interface": lambda a: np.asarray(Interface(a))[1:],
    "dlpack": lambda a: np.from_dlpack(a)[1:],
    "capsule": lambda a: a.__dlpack__(),
    "ctypes": lambda a: np.ctypeslib.as_ctypes(a),
    "ctypes from a buffer": lambda a: (ctypes.c_char * 8).from_buffer(a),
    "flat iterator": lambda a: a.flat,
    "nditer": lambda a: np.nditer(a),
    "pickle buffer": lambda a: pickle.PickleBuffer(a),
    "0-d": lambda a: a[:1].reshape(()),
    "empty": lambda a: a[:0],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_block_stays_out_while_anything_can_reach_it(view: str) -> None:
    pool, _ = small_pool()
    array = pool.take(MIB)
    kept: Any = VIEWS[view](array)
    del array
    assert pool.cached == 0
    del kept
    assert pool.cached == MIB


def test_torch_keeps_a_block_out() -> None:
    torch = pytest.importorskip("torch")
    pool, _ = small_pool()
    kept = torch.from_numpy(pool.take(MIB)[8:].view(np.float32)).reshape(2, -1)[1]
    assert pool.cached == 0
    del kept
    assert pool.cached == MIB


def test_a_finalizer_in_a_cycle_still_has_its_block() -> None:
    pool, _ = small_pool()
    seen = []

    class Late:
        def __init__(self) -> None:
            self.me = self
            self.array = pool.take(MIB)
            self.array.fill(1)

        def __del__(self) -> None:
            pool.take(MIB).fill(2)  # must be another block
            seen.append(int(self.array[0]))

    Late()
    gc.collect()
    assert seen == [1]
    assert pool.in_use == 0


def test_a_resurrected_array_keeps_its_block() -> None:
    pool, _ = small_pool()
    saved: list[Any] = []

    class Phoenix:
        def __init__(self) -> None:
            self.me = self
            self.array = pool.take(MIB)

        def __del__(self) -> None:
            saved.append(self.array)

    Phoenix()
    gc.collect()
    assert pool.cached == 0
    saved.clear()
    assert pool.cached == MIB


def test_blocks_may_come_back_in_the_middle_of_taking() -> None:
    pool, _ = small_pool()

    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.array = pool.take(MIB)

    before = gc.get_threshold()
    gc.set_threshold(1)  # collect at every chance
    try:
        for _ in range(200):
            Cycle()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert pool.in_use == 0
    assert pool.reserved == pool.cached == sum(pool.blocks())


# -- what goes back by itself ---------------------------------------------------------------------


class Book(Pool):
    """A pool of gigabytes that nobody touches, for policies."""

    def __init__(self, total: int = 64 * GIB, capacity: int = 1 << 60) -> None:
        self.system = Paper(capacity)
        super().__init__(self.system, Ledger("test"), lambda: total, lambda nbytes: None)


class Paper:
    """Gives addresses, and refuses beyond its capacity as the system does."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.given = 0

    def __call__(self, nbytes: int) -> Any:
        if self.given + nbytes > self.capacity:
            raise OSError(12, "Cannot allocate memory")
        self.given += nbytes
        mapping = allocator.fresh(nbytes)
        weakref.finalize(mapping.obj, self._back, nbytes)
        return mapping

    def _back(self, nbytes: int) -> None:
        self.given -= nbytes


def test_a_loop_of_equal_steps_maps_nothing_after_the_first() -> None:
    pool = Book()
    for _ in range(5):
        kept = [pool.take(size * 64 * MIB) for size in (1, 7, 20, 3)]
        del kept
    assert (pool.segments.allocated, pool.segments.freed) == (4, 0)
    assert pool.held.allocated == pool.held.current == 31 * 64 * MIB


def test_what_never_fits_again_goes_back() -> None:
    pool = Book()
    for i in range(20):  # each block is too small for all that follow
        pool.take(int(1.2**i * 16 * MIB))
        assert pool.cached <= SLACK + pool.leased.peak
    assert pool.held.freed > 0
    assert pool.segments.freed > 0


def test_memory_that_is_needed_no_more_goes_back_after_a_while() -> None:
    pool = Book()
    kept = [pool.take(GIB) for _ in range(8)]
    del kept
    assert pool.cached == 8 * GIB
    for _ in range(2 * WINDOW + 1):
        pool.take(MIB)
    assert pool.cached <= SLACK + MIB


def test_the_cache_makes_room_before_the_machine_is_full() -> None:
    pool = Book(total=8 * GIB)
    a = pool.take(4 * GIB)
    del a
    b = pool.take(5 * GIB)
    assert pool.in_use == b.nbytes
    assert pool.reserved <= 6 * GIB  # three quarters


def test_the_cache_makes_room_below_a_limit() -> None:
    pool = Book()
    pool._ledger.limit = 3 * GIB
    a = pool.take(2 * GIB)
    del a
    b = pool.take(2 * GIB + MIB * 2)
    assert pool.in_use == b.nbytes
    assert pool.reserved <= 3 * GIB


def test_a_refusal_empties_the_cache_and_tries_again() -> None:
    pool = Book(capacity=3 * GIB)
    a, b = pool.take(GIB), pool.take(GIB)
    del b
    c = pool.take(2 * GIB)
    assert (pool.retries, pool.reserved, c.nbytes) == (1, 3 * GIB, 2 * GIB)
    with pytest.raises(OutOfMemoryError) as refused:
        pool.take(GIB)
    assert refused.value.requested == GIB
    assert refused.value.limit is None
    assert refused.value.site is not None
    assert refused.value.site.filename == __file__
    assert "the system gives no more" in str(refused.value)
    assert isinstance(refused.value.__cause__, OSError)
    assert (pool.leases.current, pool.reserved, pool._ledger.ooms) == (2, 3 * GIB, 1)
    del a
    assert pool.take(GIB).nbytes == GIB


def test_a_size_beyond_all_addresses_is_out_of_memory() -> None:
    pool = Pool(allocator.fresh, Ledger("test"))
    for nbytes in (1 << 50, 1 << 80):
        with pytest.raises(OutOfMemoryError):
            pool.take(nbytes)
    assert pool.reserved == 0


# -- many at once ---------------------------------------------------------------------------------


def test_threads_share_a_pool() -> None:
    pool, system = small_pool()
    marks = iter(range(1, 100))
    wrong: list[int] = []

    def work() -> None:
        mark = next(marks)
        for i in range(150):
            array = pool.take(MIB // 2 * (1 + i % 3))
            array[::65536] = mark
            kept = array[:: 65536 * 2]
            del array
            if i % 50 == 0:
                pool.empty_cache()
            if not (kept == mark).all():
                wrong.append(mark)

    on_threads(work, 6)
    assert wrong == []
    assert (pool.in_use, pool.leases.current, pool.leases.allocated) == (0, 0, 900)
    # a thread that has mapped a segment may find free bytes elsewhere: that one has no pages yet
    assert pool.reserved == pool.cached == sum(pool.blocks()) <= system.given
    assert system.given == sum([segment.size for segment in pool._segments])
    pool.empty_cache()
    assert pool.reserved == system.given == 0


FORK = """
import os, sys
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
a, b = pool.take(4 << 20), pool.take(1 << 20)
a.fill(1)
b.fill(2)
del b
with host._lock:  # as if another thread held it at the fork
    child = os.fork()
if child == 0:
    a.fill(3)
    c = pool.take(1 << 20)
    c.fill(4)
    ok = host.peak == 0 and pool.in_use == 5 << 20
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
d = pool.take(1 << 20)
assert status == 0, status
assert (a == 1).all()
assert (d == 2).all()  # the child wrote to copies of its own
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_fork_has_its_own_copies() -> None:
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK], check=True)


def test_nothing_is_said_at_exit() -> None:
    code = """
from skimp._engine.memory.caching import pool
class Keeper: pass
keep = Keeper()
keep.me, keep.array = keep, pool.take(1 << 20)
globals_die_late = pool.take(2 << 20)[5:]
import builtins
builtins.last = pool.take(3 << 20)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (b"", b"")
