"""What a library made for an object is destroyed once, after it; no interrupt is lost there."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

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
    last = Owner()
    foreign.destroy_after(last, told.append, 4)
    assert told == [1, 2, 3]
    assert len(foreign._known) == known + 1
    del last


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
    last = Owner()
    foreign.destroy_after(last, seen.append, 2)
    assert seen == [1]


def test_threads_that_come_at_once_destroy_each_once() -> None:
    told: list[int] = []

    def work(start: int) -> None:
        for i in range(start, start + 500):
            foreign.destroy_after(Owner(), told.append, i)

    all_of_them = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for t in all_of_them:
        t.start()
    for t in all_of_them:
        t.join()
    last = Owner()
    foreign.destroy_after(last, told.append, -1)
    assert sorted(told) == [1000 * t + i for t in range(4) for i in range(500)]
