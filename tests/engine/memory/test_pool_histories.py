"""Any history of blocks that are taken and come back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skimp._engine.memory.caching import rounded
from skimp._engine.memory.segments import Segment
from skimp.errors import OutOfMemoryError
from tests.engine.memory.test_pool import MIB, small_pool
from tests.engine.memory.test_segments import LAZY, on_demand

# -- any history ----------------------------------------------------------------------------------


def joined(segment: Segment) -> None:
    """Free neighbours of one kind are one range."""
    for one, next_one in pairwise(segment.ranges):
        assert one.end < next_one.start or (
            one.end == next_one.start and one.warm is not next_one.warm
        )


class Histories(RuleBasedStateMachine):
    """Whatever is taken and dropped, bytes are conserved and nobody's bytes are anybody else's."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.system = small_pool(capacity=40 * MIB, total=64 * MIB)
        self.held: list[tuple[np.ndarray[Any, Any], int]] = []
        self.mark = 0

    @rule(nbytes=st.integers(1, 6 * MIB), zeroed=st.booleans(), offset=st.integers(0, 100))
    def take(self, nbytes: int, zeroed: bool, offset: int) -> None:
        try:
            array = self.pool.take(nbytes, zeroed=True) if zeroed else self.pool.take(nbytes)
        except OutOfMemoryError:
            assert self.pool.cached == self.stuck()  # everything had been tried
            return
        assert array.nbytes == rounded(nbytes)
        assert not (zeroed and array.any())
        self.mark = self.mark % 255 + 1
        array.fill(self.mark)
        self.held.append((array[offset:].view(), self.mark))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        del self.held[data.draw(st.integers(0, len(self.held) - 1))]

    @rule()
    def empty(self) -> None:
        cached, stuck = self.pool.cached, self.stuck()
        assert self.pool.empty_cache() == cached - stuck
        assert self.pool.cached == stuck

    def stuck(self) -> int:
        """Free bytes beside such as are used: this system takes back whole segments only."""
        free = [sum([b - a for a, b, _ in s.ranges]) for s in self.pool._segments]
        sizes = [s.size for s in self.pool._segments]
        return sum([n for n, size in zip(free, sizes, strict=True) if n < size])

    @invariant()
    def bytes_are_conserved(self) -> None:
        pool = self.pool
        assert pool.reserved == pool.in_use + sum(pool.blocks()) == self.system.given
        assert pool.leases.current == len(self.held)
        assert pool.leased.current == pool.in_use <= pool.peak_reserved
        assert pool.asked.current <= pool.leased.current
        assert pool.peak_reserved <= 40 * MIB

    @invariant()
    def what_is_free_is_joined(self) -> None:
        for segment in self.pool._segments:
            joined(segment)
            if not self.held:
                assert segment.ranges == [(0, segment.size, True)]

    @invariant()
    def contents_are_as_they_were_written(self) -> None:
        for array, mark in self.held:
            assert array[0] == mark
            assert array[-1] == mark

    @invariant()
    def nothing_overlaps(self) -> None:
        spans = sorted(np.lib.array_utils.byte_bounds(array) for array, _ in self.held)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


class LazyHistories(Histories):
    """The same on one segment of addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = on_demand(40 * MIB)

    def stuck(self) -> int:
        return 0

    @invariant()
    def bytes_are_conserved(self) -> None:
        pool = self.pool
        assert pool.reserved == pool.in_use + sum(pool.blocks())
        assert pool.leases.current == len(self.held)
        assert pool.leased.current <= pool.peak_reserved

    @invariant()
    def what_is_free_is_joined(self) -> None:
        for segment in self.pool._segments:
            joined(segment)
            free = sum(end - start for start, end, _ in segment.ranges)
            if not self.held:
                assert free == segment.size


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestLazyHistories = LAZY(LazyHistories.TestCase)
TestLazyHistories.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
