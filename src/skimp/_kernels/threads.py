"""A small pool of threads that share the work of one call, and NumPy set for it: no warnings, and
short buffers.

`share(work, threads)` runs `work()` on the calling thread and on helpers at the same time; `work`
takes its pieces from a common iterator, so it does not matter how many helpers there are or when
they come.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

import numpy as np

# Where an operand is broadcast and its rows are shorter than this many elements, NumPy copies it to
# a buffer again and again; so with its 8192, rows of 1024 to 8191 took twice as long.
_BUFFER: Final = 1024


class _Helper:
    """A daemon thread that waits for one piece of work at a time."""

    __slots__ = ("_error", "_go", "_job", "done")

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._go.acquire()
        self.done = threading.Lock()
        self.done.acquire()
        self._job: Callable[[], object] | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._serve, name="skimp-helper", daemon=True).start()

    def start(self, job: Callable[[], object]) -> None:
        self._job = job
        self._go.release()

    def join(self) -> BaseException | None:
        """Wait until the work is done; what it raised, or None."""
        interrupt: BaseException | None = None
        while True:
            try:
                self.done.acquire()
                break
            except KeyboardInterrupt as raised:  # its arrays are in use until it is done: a moment
                interrupt = raised
        error, self._error = self._error, None
        return interrupt or error

    def _serve(self) -> None:
        _here.helping = True
        while True:
            self._go.acquire()
            job, self._job = self._job, None
            assert job is not None
            try:
                quietly(job)
            except BaseException as error:  # handed to the caller, whatever it is
                self._error = error
            del job  # it holds the arrays of the work
            self.done.release()


class _Here(threading.local):
    """What belongs to one thread: contexts without NumPy's warnings, and whether it is a helper."""

    def __init__(self) -> None:
        self.contexts: list[Context] = []
        self.helping = False


_here = _Here()
_pool: list[_Helper] = []
_pool_in_use = threading.Lock()


def quietly(fn: Callable[..., Any], *args: Any) -> Any:
    """fn(*args) with NumPy's floating point warnings off, and short buffers.

    The same as `with np.errstate(all="ignore")` for a tenth of its time, which matters on every
    small op.
    """
    contexts = _here.contexts
    context = contexts.pop() if contexts else _quiet_context()
    try:
        return context.run(fn, *args)
    finally:
        contexts.append(context)


def _quiet_context() -> Context:
    context = Context()
    context.run(np.seterr, all="ignore")
    context.run(np.setbufsize, _BUFFER)
    return context


def share(work: Callable[[], object], threads: int) -> None:
    """Run `work` on `threads` threads at once, this one among them; raise what any of them raised.

    A helper that calls this, and a caller that finds the helpers busy with another thread's work,
    runs everything itself: `work` must be right whichever number of threads runs it.
    """
    if threads < 2 or _here.helping or not _pool_in_use.acquire(blocking=False):
        quietly(work)
        return
    try:
        _share(work, threads - 1)
    finally:
        _pool_in_use.release()


def _share(work: Callable[[], object], helpers: int) -> None:
    while len(_pool) < helpers:
        _pool.append(_Helper())
    busy: list[_Helper] = []
    error: BaseException | None = None
    try:
        for helper in _pool[:helpers]:
            helper.start(work)
            busy.append(helper)
        quietly(work)
    except BaseException as raised:  # the helpers still use the arrays: wait for them first
        error = raised
    for helper in busy:
        error = helper.join() or error
    if error is not None:
        raise error


def _forget_threads() -> None:
    """In a forked child no helper runs, and locks may be held by threads that are not there."""
    global _pool_in_use
    _pool.clear()
    _pool_in_use = threading.Lock()
    _here.helping = False


if hasattr(os, "register_at_fork"):  # absent on Windows
    os.register_at_fork(after_in_child=_forget_threads)
