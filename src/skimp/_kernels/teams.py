"""Teams of OpenMP's threads, which oneDNN has: how many work together now.

They are awake at once, and wait for each other at the end of each piece of work. Where another
process has one of their cores, that wait is a slice of the scheduler's time, milliseconds, again
and again: a U-Net's step took ten times as long. So who was late has them rest for a while, in
which work is done alone, or shared by our own threads, of which none waits for another's slice
before all is done.

So an account is kept of what teams save, about half of what each piece of work takes, and of what
waiting costs, and they rest once it is overdrawn. Late is who is waited for without a core: at the
end of work the others are waited for awake at first, for .3 to 1 ms, then asleep. On a quiet
machine that happens too, once in some hundred works, where the scheduler puts two threads on one
core: 3 ms, of which a rest would make a hundred.

And whoever has had no work for a while sleeps, and takes 50 to 150 us to be woken: that is done
for what is long, or comes again and again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import local
from time import perf_counter, thread_time
from typing import Final

_LATE: Final = 200e-6  # seconds, as all here
_AWAKE: Final = 0.4e-3  # what of a wait that ends asleep is passed awake
_CREDIT: Final = 0.5e-3  # what it holds at first, and after a rest: that they are woken costs, too
_MOST: Final = 10e-3  # what the account holds at most: three slices of the scheduler's
_SHORT: Final = 0.02
_WAKE: Final = 100e-6  # what has to be saved for who sleeps to be woken
_NEAR: Final = 50e-6  # later than expected when nobody was late
_SPIN: Final = 300e-6  # how long they are awake after work, at least
_LONG: Final = 1.0
LIMITS: Final = (_LATE, _NEAR, _SPIN, _MOST)  # what C has to know of works like most
_CHOSEN: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
# How long threads wait awake: 300 us on a Zen 5, 380 on a Sapphire Rapids, 1 ms on a Zen 4. Ten
# times as long in PyTorch, a hundred times unless it is told.
_TURNS: Final = ("GOMP_SPINCOUNT", "30000")


class _Told(local):
    """How large this thread's team was when its others were told to get no signals (`signals`);
    0: who is in it now may not have been told."""

    size = 0


class _Began(local):
    """What this thread had had of a core when the long work began that it shares."""

    core = 0.0


class Account:
    """What every work reads or writes, in slots: C does, where loops are compiled (`shares.h`)."""

    __slots__ = ("awake", "saved", "until")

    def __init__(self) -> None:
        self.saved = _CREDIT  # by working together since the last rest, less what it cost
        self.until = -_LONG  # when the last rest ends
        self.awake = -_LONG  # until when the others are


told: Final = _Told()
account: Final = Account()
_here: Final = _Began()
_rest = _SHORT  # how long the last rest was
_missed = 0.0  # what would have been saved since they sleep, by works close to each other
_close = -_LONG  # until when the next of these has to come


@contextmanager
def patience() -> Iterator[None]:
    """Inside, OpenMP is loaded with threads that wait for the next work awake, but not for long.

    It reads its environment then; who says anything about it has chosen.
    """
    if any(name in os.environ for name in _CHOSEN):
        yield
        return
    os.environ[_TURNS[0]] = _TURNS[1]
    try:
        yield
    finally:
        del os.environ[_TURNS[0]]


def size(threads: int, seconds: float = _LONG) -> int:
    """How many of so many threads work together now on what takes one so long: all, or one."""
    return threads if threads > 1 and worth(seconds) else 1


def begin() -> tuple[float, float]:
    """What `end` is to be told after the work: the time, and what the thread had of a core."""
    return perf_counter(), thread_time()


def gathered(seconds: float) -> tuple[float, float] | None:
    """The same, where all work together now, as `worth` says; None where one works alone."""
    now = worth(seconds)
    return (now, thread_time()) if now else None


def end(began: tuple[float, float]) -> None:
    """Enter the work, and have all rest where they cost more than they saved: twice as long as the
    last time if they worked for less than a second since.
    """
    now = perf_counter()
    took = now - began[0]
    if took < _LATE:  # nobody was late, and what the thread had of a core is not asked
        _enter(now, took / 2)
    else:
        _judge(now, took, thread_time() - began[1])


def worth(seconds: float) -> float:
    """When work begins that takes one thread so long, where all work together on it now; else 0.

    They do while they are awake. They are woken where works of which none was shared, for they
    slept, and none came later after another than they would have been awake, would have saved
    together what that costs.
    """
    global _close, _missed
    now = perf_counter()
    if now < account.until:
        return 0.0
    if now >= account.awake:
        _missed = seconds / 2 + (_missed if now < _close else 0.0)
        _close = now + 2 * seconds + _SPIN  # memory that is waited for may double it
        if _missed < _WAKE:
            return 0.0
        _missed = 0.0
        account.awake = now  # there is a team now, also where a handler raises before `done`
    if seconds >= _LATE:
        _here.core = thread_time()
    return now


def done(began: float, seconds: float) -> None:
    """Enter work that `worth` let all do. In a short one who is waited for is waited for awake: so
    what the thread had of a core does not tell whether another was late, but what it takes does. A
    long one may take several times what is said, where it is memory that is waited for."""
    now = perf_counter()
    took = now - began
    if seconds >= _LATE:
        _judge(now, took, thread_time() - _here.core)
    elif took <= 2 * seconds + _NEAR:
        _enter(now, min(seconds, took) / 2)
    else:
        _enter(now, seconds - took)


def _judge(now: float, took: float, worked: float) -> None:
    """Enter a work that took so long, in which this thread had so much of a core."""
    waited = took - worked
    late = waited >= _LATE
    _enter(now, max(worked - _AWAKE, 0.0) / 2 - waited if late else worked / 2)


def _enter(now: float, saved: float) -> None:
    global _rest
    if account.until == inf:
        return
    account.awake = now + _SPIN
    account.saved = min(account.saved + saved, _MOST)
    if account.saved < 0:
        account.saved = _CREDIT
        _rest = min(2 * _rest, _LONG) if now < account.until + _LONG else _SHORT
        account.until = now + _rest


def disband() -> None:
    """There are no others any more: from now on one works alone."""
    account.until = inf


def _after_fork() -> None:
    if account.awake > 0:  # a team has worked, of which only this thread is left
        disband()


if hasattr(os, "register_at_fork"):  # absent on Windows
    os.register_at_fork(after_in_child=_after_fork)
