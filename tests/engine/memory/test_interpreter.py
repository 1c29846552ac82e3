"""What skimp rests on in CPython, asked of the interpreter that runs the tests."""

from __future__ import annotations

import dis
import gc
import subprocess
import sys
import threading
import weakref
from collections import deque
from operator import call
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

import skimp
from skimp._engine.autograd import modes
from skimp._engine.budget import evictable
from skimp._engine.interpreter import (
    HELD_BY_ARGUMENT,
    HELD_BY_ATTRIBUTE,
    HELD_BY_CALL,
    HELD_BY_VARIABLE,
    enters_uninterrupted,
    refusal,
)
from skimp._engine.memory import caching, storage
from skimp._engine.memory.caching import Pool
from skimp._engine.memory.keeping import Watch
from skimp._engine.memory.ledger import Ledger
from skimp._engine.memory.rematerialize import Followed
from skimp._engine.memory.segments import Segment
from skimp._engine.tensor.tensor import IN_PYTHON
from skimp._kernels.threads import Guard
from skimp.lens.collect import Collector
from tests.support.steps import breaks_between

# Where the code says "one step": a function, the first line of the step, and its last.
STEPS = [
    (Ledger.charge, "self.made = ", "owner.nbytes = "),
    (Ledger.refund, "owner.nbytes = -1", "self.freed = "),
    (Ledger.rise, "live = self.total", "self.most_made = living"),
    (Ledger.fold, "high = self._high", "self._high = "),
    (Ledger.aim, "high, slack = ", "self.ceiling = high"),
    (caching._ended, "ended, ledger = ", "ledger.ceiling = "),
    (Ledger._make_room, "owner.nbytes = -1", "self.total = self.total - nbytes"),
    (IN_PYTHON["__del__"], "n = self.nbytes", "host.freed = "),
    (Watch.add, "refs += (ref,)", "places[key] = n"),
    (Watch.look, "self._refs = refs", "self._places = places"),
    (Watch.stop, "self._refs = refs", "self._places = places"),
    (storage.taken, "host.made = ", "owner.nbytes = "),
    (IN_PYTHON["fresh"], "host.made = ", "s.nbytes = n"),
    (Segment.take_part, "if self.version != version", "claim.start = "),
    (Segment._take, "if self.version != version", "held.peak = "),
    (Segment.put, "if self.version == version", "claim.segment = None"),
    (Segment.close, "if self.version == version:", "held.freed = "),
    (Pool.take, "_LEASES[key] = lease", "ledger.slack = "),
    (evictable.evict, "if needs is not None and begun", "host.freed = "),
    (Pool._take_back, "if claim.counted", "asked.freed = "),
    (Pool._discard, "held = self.held", "claim.warm = False"),
]


@pytest.mark.parametrize(("function", "first", "last"), STEPS)
def test_a_step_has_no_moment_in_which_something_else_runs(
    function: Any, first: str, last: str
) -> None:
    assert list(breaks_between(function, first, last)) == []


def test_what_would_break_a_step_is_found() -> None:
    def example(x: Any) -> None:
        x.first = 1
        x.second = len("12")
        for _ in "ab":
            x.third = 3

    assert list(breaks_between(example, "x.first", "x.first")) == []
    assert len(list(breaks_between(example, "x.first", "x.second"))) >= 1
    assert any("JUMP" in one for one in breaks_between(example, "for _", "x.third"))


@pytest.mark.parametrize(
    "function",
    [
        IN_PYTHON["__del__"],
        caching._ended,
        Followed.__del__,
        Ledger._tell_freed,
        Collector.freed,
        modes.no_grad.__exit__,
    ],
)
def test_what_must_not_be_interrupted_at_its_beginning_is_not(function: Any) -> None:
    resume = next(one for one in dis.get_instructions(function) if one.opname == "RESUME")
    assert resume.arg is not None
    assert resume.arg & 3 == 2


def test_a_marked_function_works_as_before() -> None:
    @enters_uninterrupted
    def add(a: int, b: int = 2, *rest: int, word: str = "w", **more: Any) -> Any:
        """Adds."""
        return a + b, rest, word, more

    assert add(1) == (3, (), "w", {})
    assert add(1, 3, 4, word="x", y=5) == (4, (4,), "x", {"y": 5})
    assert add.__doc__ == "Adds."
    assert add.__name__ == "add"

    @enters_uninterrupted
    def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        fails()
    assert raised.traceback[-1].lineno > 0


def test_objects_die_with_their_last_reference_and_a_deque_notes_it() -> None:
    class Thing:
        pass

    dead: deque[Any] = deque()
    gc.disable()
    try:
        thing = Thing()
        assert sys.getrefcount(thing) == HELD_BY_VARIABLE
        again = thing
        assert sys.getrefcount(thing) == HELD_BY_VARIABLE + 1
        ref = weakref.ref(thing, dead.append)
        assert next(map(sys.getrefcount, map(call, [ref]))) == HELD_BY_CALL + 2
        del thing, again
        assert list(dead) == [ref]
    finally:
        gc.enable()


def test_who_hands_an_object_on_and_who_has_it_in_an_attribute_is_counted() -> None:
    def asked(thing: object) -> int:
        return sys.getrefcount(thing)

    held = SimpleNamespace(thing=object())
    counts = [sys.getrefcount(held.thing)]  # not in `assert`, of which pytest makes variables
    thing = held.thing
    counts += [sys.getrefcount(held.thing), asked(thing)]
    del held.thing
    counts += [asked(thing)]
    one, argument = HELD_BY_ATTRIBUTE, HELD_BY_ARGUMENT
    assert counts == [one, one + 1, argument + 1, argument]


def test_frames_lead_to_the_caller() -> None:
    def inner() -> Any:
        return sys._getframe(1).f_code.co_name

    assert inner() == "test_frames_lead_to_the_caller"


def test_a_place_in_a_code_object_leads_to_the_line() -> None:
    def outer() -> Any:
        noted = sys._getframe()
        return noted.f_code, noted.f_lasti

    code, at = outer()
    line = list(code.co_positions())[at // 2][0]
    assert line == code.co_firstlineno + 2  # where it asked


def test_the_same_source_gives_the_same_code() -> None:
    def one(g: Any) -> Any:
        return g

    def other(g: Any) -> Any:
        return g

    def unlike(g: Any) -> Any:
        return -g

    assert one.__code__.co_code == other.__code__.co_code != unlike.__code__.co_code


def test_a_lock_says_whose_it_is() -> None:
    guard = Guard()
    seen = []

    def ask() -> None:
        thread = threading.Thread(target=lambda: seen.append(guard.passes()))
        thread.start()
        thread.join()

    ask()
    assert not guard.passes()
    with guard(), guard():
        assert guard.passes()
        ask()
    assert not guard.passes()
    assert seen == [False, False]


def test_queues_are_not_written_in_python() -> None:
    assert not hasattr(SimpleQueue.put, "__code__")
    assert not hasattr(SimpleQueue.get, "__code__")


def test_the_collector_knows_storages_and_who_refers_to_them() -> None:
    holder = [skimp.empty(3).untyped_storage()._storage]
    assert any(one is holder[0] for one in gc.get_referrers(type(holder[0])))
    assert any(one is holder for one in gc.get_referrers(holder[0]))


@pytest.mark.parametrize(
    ("name", "locked", "words"),
    [
        ("cpython", True, None),
        ("pypy", True, "needs CPython"),
        ("graalpy", True, "needs CPython"),
        ("cpython", False, "global lock"),
    ],
)
def test_other_interpreters_are_refused(name: str, locked: bool, words: str | None) -> None:
    found = refusal(name, locked)
    assert (found is None) == (words is None)
    assert words is None or words in str(found)


@pytest.mark.parametrize(
    "change", ["sys.implementation.name = 'pypy'", "sys._is_gil_enabled = lambda: False"]
)
def test_the_import_of_skimp_says_so(change: str) -> None:
    code = f"import sys; {change}; sys.modules['numpy'] = None; import skimp"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: skimp needs CPython" in done.stderr
