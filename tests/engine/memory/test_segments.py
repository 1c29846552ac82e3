"""Segments of spare addresses: what is mapped, what goes back, what it costs."""

from __future__ import annotations

import pytest

from skimp._engine.memory import allocator
from skimp._engine.memory.caching import Pool
from skimp._engine.memory.ledger import Ledger
from tests.engine.memory.test_pool import GIB, MIB, Book

# -- one segment of spare addresses ----------------------------------------------------------------

LAZY = pytest.mark.skipif(allocator.reserve(MIB) is None, reason="no pages on demand")


def on_demand(total: int = 64 * MIB) -> Pool:
    """A pool whose first segment has `total` addresses, and pages where they were used."""
    return Pool(allocator.fresh, Ledger("test"), lambda: total)


@LAZY
def test_all_blocks_lie_in_one_segment_and_only_what_is_used_counts() -> None:
    pool = on_demand()
    a, b = pool.take(3 * MIB), pool.take(5 * MIB)
    assert b.ctypes.data - a.ctypes.data == 3 * MIB
    assert (pool.segments.current, pool.reserved, pool.cached) == (1, 8 * MIB, 0)
    del a
    c = pool.take(8 * MIB)  # the hole is too small, and less than most of the block
    assert (pool.reserved, pool.cached) == (16 * MIB, 3 * MIB)
    del b, c
    d = pool.take(18 * MIB)  # what was used, and a little more
    assert (pool.reserved, pool.peak_reserved, pool.cached) == (18 * MIB, 18 * MIB, 0)
    del d
    assert pool.empty_cache() == 18 * MIB
    assert (pool.reserved, pool.segments.current) == (0, 0)


@LAZY
def test_pages_that_went_back_are_zero_again() -> None:
    pool = on_demand()
    a, b, c = pool.take(2 * MIB), pool.take(2 * MIB), pool.take(2 * MIB)
    for array in (a, b, c):
        array.fill(255)
    where = a.ctypes.data
    del a
    assert pool.empty_cache() == 2 * MIB
    assert (pool.reserved, pool.cached) == (4 * MIB, 0)
    assert (b == 255).all()
    assert (c == 255).all()
    d = pool.take(2 * MIB, zeroed=True)
    assert d.ctypes.data == where
    assert not d.any()
    assert pool.reserved == 6 * MIB


@LAZY
def test_the_highest_pages_go_first() -> None:
    pool = on_demand()
    a, b, c = pool.take(8 * MIB), pool.take(2 * MIB), pool.take(8 * MIB)
    del a, c
    pool.trim(14 * MIB)
    assert sorted(pool.blocks()) == [4 * MIB, 8 * MIB]
    assert pool.reserved == 14 * MIB
    pool.trim(0)
    assert pool.reserved == pool.in_use == b.nbytes


@LAZY
def test_more_than_the_segment_has_gets_another() -> None:
    pool = on_demand(16 * MIB)
    a, b, c = pool.take(10 * MIB), pool.take(10 * MIB), pool.take(30 * MIB)
    assert pool.segments.current == 3
    assert pool.reserved == a.nbytes + b.nbytes + c.nbytes
    del a, b, c
    pool.empty_cache()
    assert (pool.reserved, pool.segments.current) == (0, 0)


def test_blocks_of_a_training_step_hardly_cost_more_than_their_peak() -> None:
    """Forward keeps small blocks between large ones; backward frees them and asks for larger ones.

    Where blocks were neither split nor joined, that took a quarter more than the peak.
    """
    pool = Book(total=GIB)
    pool._spare = allocator.reserve  # type: ignore[misc]
    if allocator.reserve(MIB) is None:
        pytest.skip("no pages on demand")
    for _ in range(3):
        saved = []
        for _ in range(4):
            saved.append([pool.take(n * MIB) for n in (4, 4, 12, 4, 16)])
            temporary = pool.take(16 * MIB)
            del temporary
        for _ in range(4):
            x, mixed, qkv, between, up = saved.pop()
            again, g = pool.take(16 * MIB), pool.take(16 * MIB)
            del again, up
            of_between = pool.take(4 * MIB)
            del g, between
            of_mixed = pool.take(4 * MIB)
            of_qkv = pool.take(12 * MIB)
            del qkv, mixed, of_mixed
            of_x = pool.take(4 * MIB)
            del of_qkv, of_between, of_x, x
    assert pool.in_use == 0
    assert pool.leased.peak <= pool.peak_reserved <= 1.03 * pool.leased.peak
    assert list(pool.blocks()) == [pool.reserved]  # all of it joined
