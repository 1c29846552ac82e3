"""Signals of the threads on which oneDNN multiplies.

Its code for products (`gemm`) has the stack's pointer at the beginning of a block of the heap while
it runs, and what a signal puts on the stack lies before that block then: over the bytes of others.

So a thread that asks for a product handles its signals on memory of its own, from the first one on.
Threads of OpenMP's that take part have nothing to handle, and get no signals: a timer's may go to
any thread (`ITIMER_PROF`'s go to the one that runs), which has to be one of the program's.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, teams
from skimp._kernels.threads import at_once

_NONE: Final = 2  # SS_DISABLE
_HANDLERS: Final = 1 << 17  # bytes: a frame with all registers has 11 KiB
# What a thread is sent for its own fault, and is ended by without a word where that is blocked.
_FAULTS: Final = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS")
_Set: Final = ctypes.c_uint64 * 16  # C's `sigset_t`


class _AltStack(ctypes.Structure):
    """Linux's `stack_t`."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


class _OwnStack:
    """Memory for handlers of a thread's signals, as long as the thread is there."""

    def __init__(self, change: Callable[..., int]) -> None:
        self._change = change
        self._memory = np.empty(_HANDLERS, np.uint8)  # without pages until a signal comes
        self._none = ctypes.byref(_AltStack(None, _NONE, 0))
        change(ctypes.byref(_AltStack(self._memory.ctypes.data, 0, _HANDLERS)), None)

    def __del__(self) -> None:
        # a thread drops what is its own at its own end, and the main one, on which handlers of
        # signals run, at the interpreter's: nothing comes in between that could be lost
        self._change(self._none, None)


class _Here(threading.local):
    """A thread whose signals are handled on memory of their own, which it has from the first time
    on that `apart` is asked for."""

    def __init__(self) -> None:
        self.apart = True
        if sys.platform != "linux":
            return
        change = ctypes.CDLL(None).sigaltstack
        before = _AltStack()
        if not change(None, ctypes.byref(before)) and before.flags & _NONE:  # nobody gave it any
            self._stack = _OwnStack(change)


here: Final = _Here()


def gather(team: int) -> None:
    """Let what this thread asks oneDNN for run on so many OpenMP threads, of which the others get
    no signals; on this one, if there is no way to tell them.

    They are told once: products let none of them go. What else a team does may (`use_threads`), and
    then whoever comes is told again.
    """
    put, told = onednn.put_threads(), _told()
    if put is None or told is None:
        onednn.use_threads(1)
        return
    if teams.told.size != team:
        mask, parallel, block, most, bits = told
        before = _Set()  # not kept: a `__del__` that runs in between may come here too
        at_once((
            (mask, signal.SIG_BLOCK, most, before),  # threads that are made now begin so
            (parallel, block, bits, team, 0),  # others may be there; this one does it as well
            (mask, signal.SIG_SETMASK, before, None),
        ))  # fmt: skip
        teams.told.size = team
    put(team)


@cache
def _told() -> tuple[Any, ...] | None:
    """What changes this thread's mask, what has a team call a function, that which adds to the
    mask, and the signals: all, and of the first 31."""
    c = ctypes.CDLL(None)
    parallel = getattr(onednn.library(), "GOMP_parallel", None)
    block = getattr(c, "sigblock", None)
    if parallel is None or block is None:
        return None
    word, pointer = ctypes.c_uint, ctypes.c_void_p
    parallel.argtypes, parallel.restype = (pointer, pointer, word, word), None
    mask = c.pthread_sigmask
    mask.argtypes = (ctypes.c_int, pointer, pointer)
    bits = ~sum([1 << getattr(signal, name) - 1 for name in _FAULTS])
    return mask, parallel, ctypes.cast(block, pointer), _Set(bits), bits & 0x7FFFFFFF
