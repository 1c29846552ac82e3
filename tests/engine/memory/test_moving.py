"""Pages that move: scattered free bytes serve a block that none of them is large enough for."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from skimp._engine.memory import allocator, moving
from skimp._engine.memory.caching import LOOSE, Pool, rounded
from skimp._engine.memory.ledger import Ledger
from skimp._engine.memory.moving import move_in
from skimp._engine.memory.segments import SEWN, Claim
from tests.engine.memory.test_pool import MIB


def moves() -> bool:
    memory = allocator.reserve(MIB)
    return memory is not None and allocator.move(memory, 0, MIB // 2, 4096)


MOVES = pytest.mark.skipif(not moves(), reason="a system that moves no pages")
ACROSS = pytest.mark.skipif(not allocator.moves_across(), reason="before Linux 6.17")


@pytest.fixture(
    autouse=True,
    params=[pytest.param(True, marks=ACROSS), False],
    ids=["across", "piece by piece"],
    scope="module",
)
def reach(request: Any) -> Any:
    """A move may reach across seams, as from Linux 6.17 on, or may not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocator, "moves_across", lambda: request.param)
        yield


class Owner:
    nbytes = -1


def bounded(nbytes: int) -> Pool:
    """A pool of its own ledger, which may reserve so much."""
    ledger = Ledger("test")
    pool = Pool(allocator.fresh, ledger, lambda: 64 * MIB)
    ledger.backing = pool
    ledger.limit = nbytes
    return pool


def take(pool: Pool, nbytes: int) -> Any:
    """A block, counted as a storage's is."""
    array = pool.take(nbytes)
    pool._ledger.total += nbytes
    return array


def drop(pool: Pool, array: Any) -> None:
    pool._ledger.freed += array.nbytes


def scattered(pool: Pool) -> list[Any]:
    """Four blocks of 1 MiB that are used, with as much between each two that was."""
    blocks = [take(pool, MIB) for _ in range(8)]
    for i, array in enumerate(blocks):
        array.fill(i)
    for array in blocks[::2]:
        drop(pool, array)
    return blocks[1::2]


@MOVES
def test_scattered_pages_serve_a_large_block(monkeypatch: Any) -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    assert (pool.reserved, pool.cached) == (8 * MIB, 4 * MIB)
    monkeypatch.setattr(allocator, "discard", None)  # nothing goes back
    large = take(pool, 3 * MIB)
    assert (pool.reserved, pool.peak_reserved, pool.cached) == (8 * MIB, 8 * MIB, MIB)
    large.fill(255)
    assert [int(a.min()) for a in kept] == [int(a.max()) for a in kept] == [1, 3, 5, 7]
    more = take(pool, MIB)
    assert (pool.reserved, pool.cached) == (8 * MIB, 0)
    drop(pool, large)
    del large
    drop(pool, more)
    del more
    again = take(pool, 4 * MIB)  # across places that pages came from, and went to
    again.fill(9)
    assert (pool.reserved, pool.cached) == (8 * MIB, 0)
    assert [int(a[-1]) for a in kept] == [1, 3, 5, 7]


@MOVES
def test_a_block_begins_with_free_pages_beside_addresses(monkeypatch: Any) -> None:
    pool = bounded(8 * MIB)
    blocks = [take(pool, MIB) for _ in range(8)]
    for i in range(8):
        blocks[i].fill(i)
    for i in (7, 3, 1):
        drop(pool, blocks.pop(i))
    moved: list[int] = []
    move = allocator.move
    monkeypatch.setattr(allocator, "move", lambda *to: moved.append(to[3]) or move(*to))
    large = take(pool, 3 * MIB)
    large.fill(255)
    assert sum(moved) == 2 * MIB  # the third one is where they go
    assert (pool.reserved, pool.cached) == (8 * MIB, 0)
    assert [int(a.min()) for a in blocks] == [int(a.max()) for a in blocks] == [0, 2, 4, 5, 6]


@MOVES
def test_without_a_bound_pages_move_where_much_is_free() -> None:
    """Gradients of growing sizes, as in a DenseNet's backward: none finds a free place that is
    large enough. By the mappings alone they would hold a half more than is used.
    """
    pool = Pool(allocator.fresh, Ledger("test"), lambda: 64 * MIB)
    across = allocator.moves_across()
    for _ in range(3):
        kept, gradient = [], pool.take(MIB)
        for i in range(12):
            kept.append(pool.take(MIB // 4))
            kept[-1].fill(i)
            new = pool.take(MIB + i * MIB // 4)
            new.fill(255)
            del gradient
            gradient = new
            assert [int(array.min()) for array in kept] == list(range(i + 1))
        assert {int(array.max()) for array in (gradient, new)} == {255}
        del kept, gradient, new
    more = pool.peak_reserved - pool.leased.peak
    assert more <= pool.leased.peak // LOOSE if across else more > pool.leased.peak // LOOSE


def renewed(pool: Pool) -> None:
    """There are many seams, for this once."""
    for segment in pool._segments:
        segment.many = 0
    pool.renew()


def mappings(pool: Pool) -> int:
    """What the system has for a pool's addresses."""
    segment = pool._segments[0]
    start = ctypes.addressof(ctypes.c_char.from_buffer(segment.buffer))
    ends = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    return sum(int(b, 16) > start and int(a, 16) < start + segment.size for a, b in ends)


def a_step(pool: Pool, random: Random) -> None:
    """Blocks of many sizes come and go, and more than half of what there may be is in use."""
    held: deque[Any] = deque()
    for _ in range(60):
        size = rounded(random.randrange(4, 24) << 16)
        while pool.in_use + size > 8 * MIB:
            held.rotate(random.randrange(len(held)))
            drop(pool, held.popleft())
        held.append(take(pool, size))
    for array in held:
        drop(pool, array)


@MOVES
def test_a_program_that_goes_on_for_long_has_few_seams() -> None:
    pool, random = bounded(8 * MIB), Random(0)
    for _ in range(60):
        a_step(pool, random)
        pool.renew()
        assert len(pool._segments[0].seams) < 2 * SEWN
    assert mappings(pool) < 2 * SEWN
    assert pool._segments[0].moves


@MOVES
def test_free_addresses_are_one_thing_again() -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    large = take(pool, 3 * MIB)
    drop(pool, large)
    del large
    before = mappings(pool)
    renewed(pool)
    assert [int(a.min()) for a in kept] == [int(a.max()) for a in kept] == [1, 3, 5, 7]
    assert (pool.reserved, pool.cached) == (4 * MIB, 0)
    assert mappings(pool) < before
    for array in kept:
        drop(pool, array)
    del array
    kept = []
    renewed(pool)
    assert pool._segments[0].seams == [allocator.SMALL_PAGES]
    assert not pool.take(8 * MIB, zeroed=True).any()
    assert mappings(pool) == 2  # small pages, huge ones


@MOVES
def test_what_can_not_be_renewed_stays(monkeypatch: Any) -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    take(pool, 3 * MIB)
    seams = list(pool._segments[0].seams)
    monkeypatch.setattr(allocator, "renew", lambda *_: False)
    renewed(pool)
    assert pool._segments[0].seams == seams
    assert pool.reserved == pool.in_use + sum(pool.blocks()) == 8 * MIB
    del kept


@MOVES
def test_where_pages_came_from_reads_as_zeros() -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    large = take(pool, 4 * MIB)
    assert large.any()  # what was in them came along
    pool._ledger.limit = 16 * MIB
    assert not pool.take(MIB, zeroed=True).any()
    drop(pool, large)
    del large
    assert not pool.take(4 * MIB, zeroed=True).any()
    del kept


@MOVES
def test_what_can_not_be_moved_goes_back(monkeypatch: Any) -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    monkeypatch.setattr(allocator, "move", lambda *_: False)
    large = take(pool, 3 * MIB)
    large.fill(1)
    assert pool.reserved <= 8 * MIB
    assert not pool._segments[0].moves
    assert [int(a[0]) for a in kept] == [1, 3, 5, 7]


@MOVES
def test_too_many_seams_end_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(moving, "MANY", -1)
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    take(pool, 3 * MIB)
    assert pool.reserved <= 8 * MIB
    assert pool._segments[0].seams == [allocator.SMALL_PAGES]  # nothing has moved
    del kept


@MOVES
def test_pages_move_from_both_sides_of_where_huge_ones_begin(monkeypatch: Any) -> None:
    monkeypatch.setattr(allocator, "SMALL_PAGES", 2 * MIB + MIB // 2)  # amid a free range
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    large = take(pool, 3 * MIB)
    assert pool._segments[0].moves
    assert len(pool._segments[0].seams) > 1
    large.fill(9)
    assert [int(a[0]) for a in kept] == [1, 3, 5, 7]


@MOVES
def test_an_interrupted_move_leaves_the_place_without_pages(monkeypatch: Any) -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    moved = allocator.move

    def interrupted(*args: Any) -> bool:
        moved(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(allocator, "move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        take(pool, 3 * MIB)
    assert (pool.reserved, pool.cached) == (8 * MIB, 4 * MIB)
    monkeypatch.undo()
    pool._ledger.limit = 32 * MIB
    held = [pool.take(MIB) for _ in range(4)]
    assert not pool.take(16 * MIB, zeroed=True).any()
    assert [int(a[0]) for a in kept] == [1, 3, 5, 7]
    del held


@MOVES
def test_a_fork_s_blocks_are_its_own() -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    child = os.fork()
    if not child:
        take(pool, 4 * MIB).fill(77)
        os._exit(0 if [int(a[0]) for a in kept] == [1, 3, 5, 7] else 1)
    large = take(pool, 4 * MIB)
    large.fill(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert large.min() == large.max() == 5


@MOVES
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30), st.data())
def test_any_history_within_a_bound(steps: list[tuple[int, bool]], data: st.DataObject) -> None:
    """What is in use stays as it is, bytes are conserved, and the bound holds."""
    pool, held = bounded(8 * MIB), []
    for mark, (size, drops) in enumerate(steps):
        if drops and held:
            at = data.draw(st.integers(0, len(held) - 1))
            pool._ledger.freed += held[at][2]
            del held[at]
        elif pool.in_use + (size << 16) + (1 << 18) <= 8 * MIB:
            array: Any = take(pool, size << 16)
            array.fill(mark)
            held.append((array, mark, size << 16))
            array = None
        assert pool.reserved == pool.in_use + sum(pool.blocks()) <= 8 * MIB
        assert all([(one == mark).all() for one, mark, _ in held])
        if mark % 7 == 6:
            renewed(pool)
        seams = pool._segments[0].seams if pool._segments else []
        assert seams == sorted(set(seams))


@MOVES
def test_a_move_within_one_segment_needs_as_many_pages_as_are_lacking() -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    left: deque[Claim] = deque()
    claim = Claim(6 * MIB)
    segment = pool._segments[0]
    pool._collect()
    assert not move_in(segment, claim, 5 * MIB, left)
    assert claim.segment is None
    assert move_in(segment, claim, 4 * MIB, left)
    assert pool.reserved == 10 * MIB  # 2 of them come when they are touched
    pool._left.extend([*left, claim])
    pool._collect()
    assert np.array_equal([int(a[0]) for a in kept], [1, 3, 5, 7])


@MOVES
def test_what_is_being_renewed_is_nobody_elses(monkeypatch: Any) -> None:
    """Another thread takes a block while free addresses are asked for anew."""
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    renew, taken = allocator.renew, []

    def meanwhile(*args: Any) -> bool:
        if len(taken) < 4:
            taken.append(pool.take(MIB))
            taken[-1].fill(9)
        return renew(*args)

    monkeypatch.setattr(allocator, "renew", meanwhile)
    renewed(pool)
    assert [int(a.min()) for a in taken] == [9] * len(taken) != []
    assert [int(a.min()) for a in kept] == [1, 3, 5, 7]
    assert pool.reserved == pool.in_use + sum(pool.blocks())


@MOVES
def test_what_came_free_meanwhile_is_taken_as_it_is(monkeypatch: Any) -> None:
    pool = bounded(8 * MIB)
    kept = scattered(pool)
    segment, claim, left = pool._segments[0], Claim(MIB), deque[Claim]()
    pool._collect()
    monkeypatch.setattr(allocator, "discard", None)  # nothing goes back
    assert move_in(segment, claim, MIB, left)
    assert (claim.cold, claim.warm, pool.reserved) == (0, True, 8 * MIB)
    pool._left.extend([*left, claim])
    pool._collect()
    assert pool.cached == sum(pool.blocks()) == 4 * MIB
    del kept


@MOVES
def test_places_that_pages_leave_and_reach_at_once_are_all_known(monkeypatch: Any) -> None:
    """Two threads: one notes where its pages went while another does."""
    pool = bounded(8 * MIB)
    pool.take(MIB)
    segment = pool._segments[0]
    bisect, first = moving.bisect_left, [True]

    def meanwhile(*args: Any) -> int:
        at = bisect(*args)
        if first.pop() if first else False:
            moving._sew(segment, 2 * MIB, 3 * MIB, 4 * MIB)
        return at

    monkeypatch.setattr(moving, "bisect_left", meanwhile)
    moving._sew(segment, 8 * MIB, 9 * MIB, 10 * MIB)
    expected = [at * MIB for at in (2, 3, 4, 5, 8, 9, 10, 11)]
    assert segment.seams == sorted({*expected, allocator.SMALL_PAGES})
