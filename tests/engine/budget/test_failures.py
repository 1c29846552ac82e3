"""A budget whose steps are interrupted, and one whose disk fails: what was there is there, what is
refused is told, and the budget goes on.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import computing, recording, repetition, spill
from skimp._engine.budget.evictable import bring_back
from skimp._engine.budget.statistics import counts
from skimp._engine.memory import caching
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, N, held, is_away, numbers
from tests.engine.memory.test_interrupts import Moments
from tests.support.running import default_mode

# what is noted follows the mode; the profiler's hook raises also where CPython would look for no
# signal, at the end of a callback
pytestmark = [
    default_mode,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def own_file() -> Iterator[None]:
    spill.seal()
    yield
    spill.seal()


def moments(program: Any) -> range:
    counting = Moments()
    counting.run(program)
    assert counting.seen
    return range(1, counting.seen + 1)


def interrupt(at: int, program: Any) -> bool:
    """Run a program and interrupt it; whether it came to that moment."""
    one = Moments(at)
    with contextlib.suppress(KeyboardInterrupt):
        one.run(program)
        for _ in range(3):
            repr(at)  # what was raised in a finalizer comes here
    return one.interrupted


def test_no_block_is_lost_where_its_end_is_interrupted() -> None:
    """Within a budget the pool's own function is told of it, in which handlers may run."""
    with torch.memory.budget(held() + 8 * MIB):
        base = pool.leases.current

        def drop() -> None:
            made.clear()

        made = [pool.take(N)]
        for at in moments(drop):
            made = [pool.take(N)]
            interrupt(at, drop)
            assert pool.leases.current == base, at
            assert len(caching._LEASES) == base


def test_a_period_whose_memory_was_interrupted_is_followed_by_others() -> None:
    with torch.memory.budget(held() + 8 * MIB):
        owner = numbers(0)._storage
        one = repetition.Repetition()
        one._now.sizes.append(MIB)  # and an interrupt comes before what was held
        assert one.turn(MIB) is None
        for _ in range(3):
            one.remember(MIB, owner)
            one.turn(MIB)
        assert one.repeats


def test_a_read_that_is_interrupted_leaves_nothing_under_way() -> None:
    with torch.memory.budget(held() + 2 * MIB):
        made = [numbers(i) for i in range(4)]
        s: Any = next(t for t in made if is_away(t))._storage
        budget: Any = host.budget
        for at in range(1, 200):
            came = interrupt(at, lambda: bring_back(s))
            assert counts.bringing == 0, at
            if not came:
                break
            if s.block is not None:
                assert budget._evict(s)
        assert at > 20
        for i, t in enumerate(made):
            assert (t == numbers(i)).all()


def test_a_call_that_is_interrupted_is_over() -> None:
    with torch.memory.budget("1GiB", spill=False):
        x = numbers(0).view(512, 512)

        def call() -> None:
            x.sort(1)

        for at in moments(call):
            interrupt(at, call)
            assert not recording._here.inside, at


def test_what_was_never_begun_ends_without_a_word() -> None:
    del_ = computing.Computing.__new__(computing.Computing)
    del_.__del__()


def test_a_disk_that_fails_later_is_told_and_its_bytes_are_read(monkeypatch: Any) -> None:
    """The system tells when it is asked to bring to the disk what it has taken before."""
    told: list[int] = []

    def fail(fd: int) -> None:
        told.append(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(spill, "BEHIND", MIB)
    monkeypatch.setattr(spill.os, "fdatasync", fail)
    made: list[Any] = []
    with torch.memory.budget(held() + 3 * MIB):
        budget: Any = host.budget
        with pytest.raises(OutOfMemoryError, match="Nothing is spilled any more: Input/output"):
            made.extend(numbers(i) for i in range(200))
        assert told
        assert not budget.spills
    assert len(made) >= 4
    for i, t in enumerate(made):
        assert (t == numbers(i)).all()
    gc.collect()


def test_a_disk_that_can_not_be_read_is_told_and_asked_again(monkeypatch: Any) -> None:
    with torch.memory.budget(held() + 2 * MIB):
        made = [numbers(i) for i in range(4)]
        away = next(t for t in made if is_away(t))
        before = host.allocated
        with monkeypatch.context() as patch:
            patch.setattr(spill.os, "preadv", lambda *_: (_ for _ in ()).throw(OSError(5, "bad")))
            with pytest.raises(OSError, match="bad"):
                away.sum()
        assert host.allocated <= before
        for i, t in enumerate(made):
            assert (t == numbers(i)).all()
