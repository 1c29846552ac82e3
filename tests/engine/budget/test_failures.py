"""A budget whose steps are interrupted, and one whose disk fails: what was there is there, what is
refused is told, and the budget goes on.
"""

from __future__ import annotations

import contextlib
import dis
import errno
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import computing, filling, repetition, spill
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


BUDGET = Path(spill.__file__).parent
ROWS = 256  # of 512: several parts; more of them come to no other place, and take longer


@pytest.fixture(autouse=True)
def own_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the frames
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
            assert len([one for one in caching._LEASES.values() if one.pool is pool]) == base


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
        x = numbers(0).view(512, 512)[:ROWS]

        def call() -> None:
            x.sort(1)

        call()  # what is made at the first call would be counted as moments of those after it
        for at in moments(call):
            interrupt(at, call)
            assert not filling.here.inside, at


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


def test_random_numbers_that_are_drawn_again_leave_the_stream_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where that is interrupted: later numbers would be others than without a budget."""
    set_state = torch.Generator.set_state

    def interrupted(self: Any, state: Any) -> None:
        set_state(self, state)
        raise KeyboardInterrupt

    with torch.memory.budget(held() + 8 * MIB, spill=False):
        budget: Any = host.budget
        x = torch.empty(N).bernoulli_(0.3)
        torch.rand(4)
        before, expected = torch.get_rng_state(), x.sum().item()
        assert budget._evict(x._storage)
        monkeypatch.setattr(torch.Generator, "set_state", interrupted)
        with pytest.raises(KeyboardInterrupt):
            x.sum()
        monkeypatch.undo()
        assert (torch.get_rng_state() == before).all()
        assert x.sum().item() == expected


class Jumps(Moments):
    """The moments where loops of the budget jump back, which the profiler's hook does not see."""

    def run(self, program: Any) -> None:
        sys._getframe().f_trace_opcodes = True  # 3.12 asks at `settrace` whether anybody ever did
        sys.settrace(self._trace)
        try:
            program()
        finally:
            sys.settrace(None)

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        if event == "call":
            frame.f_trace_opcodes = True
            return self._trace if Path(code.co_filename).parent == BUDGET else None
        if event == "opcode" and code.co_code[frame.f_lasti] == dis.opmap["JUMP_BACKWARD"]:
            self.seen += 1
            if self.seen == self.at:
                sys.settrace(None)
                self.interrupted = True
                raise KeyboardInterrupt
        return self._trace


@pytest.mark.parametrize("kind", [Jumps, Moments])
def test_what_was_held_for_a_reader_may_go_after_an_interrupt(kind: type[Moments]) -> None:
    """Without a file a storage that is held may not go at all."""
    with torch.memory.budget(held() + 8 * MIB, spill=False):
        budget: Any = host.budget
        x = numbers(0).view(512, 512)[:ROWS]
        y = x.sort(1)[0]
        z = y.cumsum(1)
        expected = z.sum().item()
        every, at, came = (1 if kind is Jumps else 23), 1, True
        while came:
            for t in (z, y):
                budget._evict(t._storage)
            assert is_away(z), at
            assert is_away(y), at
            one = kind(at)
            with contextlib.suppress(KeyboardInterrupt):
                one.run(lambda: z.topk(3, dim=1))
                repr(at)
            assert [t._storage.held for t in (x, y, z)] == [0, 0, 0], at
            at, came = at + every, one.interrupted
        assert at > 20
        assert z.sum().item() == expected


def test_bytes_that_are_made_again_are_counted_once_after_an_interrupt() -> None:
    """The block goes to the storage that it is of, with its count, in one step."""
    with torch.memory.budget(held() + 8 * MIB, spill=False):
        budget: Any = host.budget
        x = numbers(0).view(512, 512)[:ROWS]
        y = x.cumsum(1)
        expected, before = y.sum().item(), host.total - host.freed
        at, came = 1, True
        while came:
            budget._evict(y._storage)
            assert is_away(y), at
            came = interrupt(at, lambda: bring_back(y._storage))
            assert y.sum().item() == expected
            assert host.total - host.freed == before, at
            at += 1
        assert at > 50


@pytest.mark.parametrize("spill", [True, False])
def test_whatever_is_away_is_known_to_be_after_an_interrupt(spill: bool) -> None:
    """What seems to be there would be left to itself once the program is known to repeat."""
    with torch.memory.budget(held() + 8 * MIB, spill=spill):
        budget: Any = host.budget
        budget.note()
        y = numbers(0).view(512, 512).sort(1)[0]
        s = y._storage
        for at in range(1, 2000):
            came = interrupt(at, lambda: (y.sum().item(), budget._evict(s)))
            if is_away(y):
                assert any(one is s for one in budget.gone.values()), at
            if not came:
                break
        assert at > 10


def test_a_refusal_within_the_budget_says_what_is_held(monkeypatch: Any) -> None:
    with torch.memory.budget(held() + 8 * MIB):
        budget: Any = host.budget
        monkeypatch.setattr(type(pool), "overhead", 5 * MIB)
        assert "5.00 MiB more are held that no tensor has" in budget.explain(MIB)
        assert "what is in use now can't be taken away" in budget.explain(9 * MIB)
