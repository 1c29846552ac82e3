"""Teams of OpenMP's threads, which oneDNN has: how many work together now.

They are awake at once, and wait for each other at the end of each piece of work. Where another
process has one of their cores, that wait is a slice of the scheduler's time, milliseconds, again
and again: a U-Net's step took ten times as long. So who was late has them rest for a while, in
which work is done alone, or shared by our own threads, of which none waits for another's slice
before all is done.

Late is who waited without a core: at the end of work the others are waited for awake, for 300 us
(`onednn`), and asleep from then on.
"""

from __future__ import annotations

from math import inf
from time import perf_counter, thread_time
from typing import Final

_LATE: Final = 200e-6  # seconds
_SHORT: Final = 0.02
_LONG: Final = 1.0

_rest = _SHORT  # how long the last one was
_until = -_LONG  # when it ends


def size(threads: int) -> int:
    """How many of so many threads work together now: all, or one."""
    return threads if threads > 1 and perf_counter() >= _until else 1


def begin() -> float:
    """What `end` is to be told after the work: when it began, less what it had of a core."""
    return perf_counter() - thread_time()


def end(began: float) -> None:
    """Whether the others were there: after a rest in vain, one of which somebody was late again
    within a second, the next one is twice as long.
    """
    global _rest, _until
    if _until == inf or begin() - began < _LATE:
        return
    now = perf_counter()
    _rest = min(2 * _rest, _LONG) if now < _until + _LONG else _SHORT
    _until = now + _rest


def disband() -> None:
    """There are no others any more: from now on one works alone."""
    global _until
    _until = inf
