"""Teams of OpenMP's threads, which oneDNN has: how many work together now.

They are awake at once, and wait for each other at the end of each piece of work. Where another
process has one of their cores, that wait is a slice of the scheduler's time, milliseconds, again
and again: a U-Net's step took ten times as long. So who was late has them rest for a while, in
which work is done alone, or shared by our own threads, of which none waits for another's slice
before all is done.

So an account is kept of what teams save, about half of what each piece of work takes, and of what
waiting costs, and they rest once it is overdrawn. Late is who is waited for without a core: at the
end of work the others are waited for awake at first, for .1 to .4 ms (`onednn`), then asleep. On a
quiet machine that happens too, once in some hundred works, where the scheduler puts two threads on
one core: 3 ms, of which a rest would make a hundred.

And whoever has had no work for a while sleeps, and takes 50 us to be woken: what is not long is
shared only while they are awake.
"""

from __future__ import annotations

from math import inf
from threading import local
from time import perf_counter, thread_time
from typing import Final

_LATE: Final = 200e-6  # seconds, as all here
_AWAKE: Final = 0.4e-3  # the longest time for which others are waited for awake
_MOST: Final = 10e-3  # what the account holds at most: three slices of the scheduler's
_SHORT: Final = 0.02
_SPIN: Final = 150e-6  # how long they are awake after work, at least: `onednn` says
_LONG: Final = 1.0


class _Told(local):
    """How large this thread's team was when its others were told to get no signals (`signals`);
    0: who is in it now may not have been told."""

    size = 0


told: Final = _Told()
_account = 0.0  # what working together has saved since the last rest, less what it cost
_rest = _SHORT  # how long the last rest was
_until = -_LONG  # when it ends
_awake = -_LONG  # until when the others are


def size(threads: int, long: bool = True) -> int:
    """How many of so many threads work together now: all, or one."""
    if threads < 2:
        return 1
    now = perf_counter()
    return threads if now >= _until and (long or now < _awake) else 1


def begin() -> tuple[float, float]:
    """What `end` is to be told after the work: the time, and what the thread had of a core."""
    return perf_counter(), thread_time()


def gathered(long: bool) -> tuple[float, float] | None:
    """The same, where all work together now, as `size` says; None where one works alone."""
    now = perf_counter()
    return (now, thread_time()) if now >= _until and (long or now < _awake) else None


def end(began: tuple[float, float]) -> None:
    """Enter the work, and have all rest where they cost more than they saved: twice as long as the
    last time if they worked for less than a second since.
    """
    global _account, _awake, _rest, _until
    if _until == inf:
        return
    now = perf_counter()
    _awake = now + _SPIN
    worked = now - began[0]
    if worked >= _LATE:  # else nobody was late, and what the thread had of a core is not asked
        worked = thread_time() - began[1]
    waited = now - began[0] - worked
    if waited < _LATE:
        _account = min(_account + worked / 2, _MOST)
        return
    _account += max(worked - _AWAKE, 0.0) / 2 - waited
    if _account < 0:
        _account = 0.0
        _rest = min(2 * _rest, _LONG) if now < _until + _LONG else _SHORT
        _until = now + _rest


def disband() -> None:
    """There are no others any more: from now on one works alone."""
    global _until
    _until = inf
