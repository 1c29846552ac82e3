"""What a library made for an object is destroyed once, after it; no interrupt is lost there."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from skimp._kernels import foreign


class Owner:
    pass


def test_what_is_dead_is_destroyed_when_the_next_comes() -> None:
    told: list[int] = []
    known = len(foreign._known)
    one, other = Owner(), Owner()
    foreign.destroy_after(one, told.append, 1)
    foreign.destroy_after(other, told.append, 2)
    assert told == []
    del one
    assert told == []
    third = Owner()
    foreign.destroy_after(third, told.append, 3)
    assert told == [1]
    del other, third
    foreign.destroy_after(told.append, told.append, 4)  # a method that is dead by now
    foreign.destroy_after(Owner(), told.append, 5)
    assert told == [1, 2, 3, 4, 5][: len(told)]
    foreign.destroy_after(Owner, told.append, 6)
    assert told[:5] == [1, 2, 3, 4, 5]
    assert len(foreign._known) == known + 1
    foreign._known.discard(next(m for m in foreign._known if m() is Owner))


def test_no_code_runs_where_an_owner_dies() -> None:
    """So no handler of a signal, whose exception would be printed and forgotten."""
    seen: list[Any] = []
    one = Owner()
    foreign.destroy_after(one, seen.append, 1)
    gc.collect()

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            seen.append(frame.f_code)

    sys.setprofile(profile)
    try:
        del one
    finally:
        sys.setprofile(None)
    assert seen == []
    foreign.destroy_after(Owner(), seen.append, 2)
    assert 1 in seen


@pytest.mark.parametrize("threads", [4])
def test_threads_that_come_at_once_destroy_each_once(threads: int) -> None:
    import threading

    told: list[int] = []

    def work(start: int) -> None:
        for i in range(start, start + 500):
            foreign.destroy_after(Owner(), told.append, i)

    all_of_them = [threading.Thread(target=work, args=(1000 * i,)) for i in range(threads)]
    for t in all_of_them:
        t.start()
    for t in all_of_them:
        t.join()
    last = Owner()
    foreign.destroy_after(last, told.append, -1)
    assert sorted(told) == [1000 * t + i for t in range(threads) for i in range(500)]
