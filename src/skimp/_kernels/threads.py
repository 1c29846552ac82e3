"""A small pool of threads that share the work of one call, and NumPy set for it: no warnings, and
short buffers.

`share(work, threads)` runs `work()` on the calling thread and on helpers at the same time; `work`
takes its pieces from a common iterator, so it does not matter how many helpers there are or when
they come. `whole(work)` runs `work()` to its end whatever signals come meanwhile, and so does
`at_once(calls)`, right here, where calls of functions of C are all that there is to do.

A signal handler may raise anywhere on the main thread (Ctrl-C does), and nowhere else. So what must
not stop halfway stands on the side of the helpers: who has begun and who has ended is noted by
themselves. The caller only puts a task into a queue, whose every step is one for signal handlers,
and in the end closes it: who has not begun by then never will, and who has is waited for. There is
no state between two calls that an exception could leave wrong.

Python's collector runs on whichever thread allocates, and with it a program's `__del__`. On a
helper that may ask for a lock which the caller holds while it waits for this very helper, so those
that work for its owner pass a `Guard`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from itertools import starmap
from operator import call
from queue import SimpleQueue
from typing import Any, Final

import numpy as np

from skimp._kernels.locks import reentrant

# Where an operand is broadcast and its rows are shorter than this many elements, NumPy copies it to
# a buffer again and again; so with its 8192, rows of 1024 to 8191 took twice as long.
_BUFFER: Final = 1024


Call = tuple[Any, ...]  # a function of C and its arguments


class Guard:
    """A re-entrant lock, `with guard():`, that who works for its owner passes as well.

    One collection runs at a time, so no two of those meet behind it.
    """

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = reentrant()
        _guards.append(self)

    def __call__(self) -> AbstractContextManager[object]:
        return _OPEN if self in _here.passed else self.lock

    def passes(self) -> bool:
        """Whether this thread has the lock, or works for the one that has."""
        return self in _here.passed or self.lock._is_owned()  # type: ignore[attr-defined]


class _Task:
    """Work that is offered to other threads until it is closed."""

    __slots__ = ("_begun", "_closed", "_ended", "_guards", "_wake", "_work", "errors")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work: Callable[[], object] | None = work
        self._closed = False
        self._guards: Final = [guard for guard in _guards if guard.passes()]
        self._begun: Final[list[None]] = []  # an item for each thread that has begun
        self._ended: Final[list[None]] = []  # and for each that has ended, and has then said so
        self._wake: Final[SimpleQueue[None]] = SimpleQueue()
        self.errors: Final[list[BaseException]] = []

    def run(self) -> None:
        """What another thread does."""
        _here.passed = self._guards
        self._begun.append(None)
        try:
            self._run()  # whose frame, which holds arrays, is gone before anybody hears of the end
        except BaseException as error:  # handed to the caller, whatever it is
            self.errors.append(error)
        finally:
            _here.passed = []
            self._ended.append(None)
            self._wake.put(None)

    def _run(self) -> None:
        work = self._work
        if not self._closed and work is not None:
            quietly(work)

    def wait(self) -> None:
        """Until some thread has run it."""
        while not self._ended:
            self._wake.get()

    def close(self) -> None:
        """No thread begins any more; wait for those that have. An exception may come out of the
        wait: call it again then.
        """
        self._closed = True  # first: who begins after the next look sees it
        while len(self._ended) < len(self._begun):
            self._wake.get()
        self._work = None  # it holds arrays, and the task may stay in the queue for a while


def _help(tasks: SimpleQueue[_Task]) -> None:
    _here.helping = _here.apart = True
    while True:
        tasks.get().run()


def _conduct(tasks: SimpleQueue[_Task]) -> None:
    _here.apart = True
    while True:
        tasks.get().run()


class _Here(threading.local):
    """What belongs to one thread: contexts without NumPy's warnings, whether it is a helper, or
    that or the conductor, and the guards that it passes.
    """

    def __init__(self) -> None:
        self.contexts: list[Context] = []
        self.helping = False
        self.apart = False
        self.passed: list[Guard] = []


_OPEN: Final = nullcontext()
_guards: list[Guard] = []
_here = _Here()
_tasks: SimpleQueue[_Task] = SimpleQueue()  # of the helpers
_pool: list[threading.Thread] = []
_sharing: list[None] = []  # an item while a call shares its work
_whole_tasks: SimpleQueue[_Task] = SimpleQueue()
_conductor: list[threading.Thread] = []


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


def share(
    work: Callable[[], object], threads: int, helping: Callable[[], object] | None = None
) -> None:
    """Run `work` on `threads` threads at once, this one among them; raise what any of them raised.
    The others run `helping`, if there is one.

    A helper that calls this, and a caller that finds the helpers busy with another thread's work,
    runs everything itself: `work` must be right whichever number of threads runs it.
    """
    if threads < 2 or _here.helping or _sharing:
        quietly(work)
        return
    task = _Task(helping or work)
    try:
        try:
            _sharing.append(None)
            for _ in range(serving(_pool, threads - 1, _help, _tasks)):
                _tasks.put(task)
            quietly(work)
        finally:
            task.close()  # its arrays are in use until then
    finally:
        _sharing.clear()
        task.close()  # again, for what interrupted the first
    if task.errors:
        raise task.errors[0]


def alone() -> bool:
    """Whether this is a thread of the program's, and shares no work with helpers now."""
    return not (_here.apart or _sharing)


def told() -> tuple[list[None], Any]:
    """What `alone` reads, for C: the list is empty, and `apart` of this thread False."""
    return _sharing, _here


def whole(work: Callable[[], object]) -> None:
    """Run `work` to its end, or not at all: what a signal handler raises is raised afterwards.

    For what is lost if it stops halfway, such as a computation that writes over its input. On the
    main thread, where signal handlers run, another thread does it, if there can be one.
    """
    if threading.get_ident() != threading.main_thread().ident:
        work()
        return
    task = _Task(work)
    try:
        try:
            if serving(_conductor, 1, _conduct, _whole_tasks):
                _whole_tasks.put(task)
                task.wait()
            else:
                quietly(work)
        finally:
            task.close()
    finally:
        task.close()  # again, for what interrupted the first
    if task.errors:
        raise task.errors[0]


def at_once(calls: Iterable[Call]) -> None:
    """Make calls of functions of C, one after another, by one call of C: no signal handler runs
    before the last has returned, and nobody is woken for it as by `whole`.
    """
    quietly(deque, starmap(call, calls), 0)


def serving(
    running: list[threading.Thread],
    count: int,
    serve: Callable[[SimpleQueue[Any]], None],
    tasks: SimpleQueue[Any],
    name: str = "skimp-helper",
) -> int:
    """Have `count` threads that serve a queue, and say how many do: fewer where none can be
    started. One more does no harm, if this is interrupted.

    When the interpreter ends, finalizers run after the last thread but theirs has stopped for ever.
    CPython 3.12 starts none from the beginning of that on, which `atexit` is a part of.
    """
    if sys.is_finalizing():
        return 0
    while len(running) < count:
        thread = threading.Thread(target=serve, args=(tasks,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # so, too, at the system's limit of threads
            break
        running.append(thread)
    return min(len(running), count)


def _forget_threads() -> None:
    """In a forked child no helper runs, and a queue may hold what is not for it."""
    global _tasks, _whole_tasks
    _tasks, _whole_tasks = SimpleQueue(), SimpleQueue()
    _pool.clear()
    _conductor.clear()
    _sharing.clear()
    _here.helping = _here.apart = False


if hasattr(os, "register_at_fork"):  # absent on Windows
    os.register_at_fork(after_in_child=_forget_threads)
