"""What skimp rests on that is CPython's habit and not Python's promise. All of it is named here.

1. **Statements without calls are one step.** CPython with its global lock changes threads, runs
   signal handlers and collects garbage only where a function begins, where a call returns and where
   a loop jumps back. The ledger, the pool and the segments change their counters in such statements
   instead of under locks (ledger.py says how).
2. **A function whose first instruction says so begins without such a moment**
   (`enters_uninterrupted`). An exception that a signal handler raises at the beginning of
   `__del__` would be printed and forgotten, and the storage's bytes would stay counted for ever.
3. **Objects die with their last reference, and `sys.getrefcount` counts references.** What is freed
   when follows from the first; which block a result may take over, and which gradient may be added
   to in place, from the second (storage.py, autograd's engine.py and leaves.py). How many of them
   are the asking function's own depends on the version, so it is counted here: `HELD_BY_VARIABLE`,
   `HELD_BY_ARGUMENT`, `HELD_BY_ATTRIBUTE` and `HELD_BY_CALL`.
4. **`sys._getframe`** finds the user's line (call_site.py and autograd), and `f_lasti` with the
   code's positions finds it later, when the frame is gone.
5. **A function's code object can be exchanged for another of the same shape** (names of generated
   functions in tracebacks, and autocast's casts, are made so), and the same source gives the same
   `co_code` (rules.py knows by it a derivative that hands on what it gets).
6. **A lock that can be taken again says whether this thread has it** (`RLock._is_owned`, which
   `threading.Condition` asks too): who works for its owner passes it (_kernels/threads.py).
7. **A `SimpleQueue` is written in C**: no signal handler runs within one of its steps (threads.py).
8. **The collector knows who refers to what** (`gc.get_referrers`), and objects refer to their
   class: a budget begins so among tensors that are there already, and errors and `memory.holders`
   name who holds bytes.
9. **A frame's `f_trace` is nobody's unless a tracer runs, and lives as long as its function.**
   While memory is recorded, the stack that called a function is noted there (lens/stacks.py).

`tests/engine/memory/test_interpreter.py` asks the running interpreter for each. An interpreter
without them is refused when skimp is imported, since it would count and free wrongly, not slowly.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import call
from typing import Any, Final, TypeVar
from weakref import ref

F = TypeVar("F", bound=Callable[..., Any])

_PLACE: Final = 3  # the bits of RESUME's argument that say where it stands,
_AT_START: Final = 0
_INSIDE: Final = 2  # and from which value on it asks for nothing


def refusal(name: str, locked: bool) -> str | None:
    """Why an interpreter of this name, with or without a global lock, can't run skimp."""
    if name != "cpython":
        return f"skimp needs CPython: it counts and frees memory by CPython's rules; this is {name}"
    if not locked:
        return (
            "skimp needs CPython with its global lock, and this is a free-threaded build that runs "
            "without: start it with PYTHON_GIL=1 or -X gil=1"
        )
    return None


def require() -> None:
    """ImportError: skimp can't run on this interpreter."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)
    message = refusal(sys.implementation.name, locked())
    if message is not None:
        raise ImportError(message)


def enters_uninterrupted(function: F) -> F:
    """Have a function begin without a moment for signal handlers and other threads.

    CPython asks for them in the instruction with which a function begins, unless that says that it
    is the end of a `yield from`. Unchanged where there is no such instruction.
    """
    code: Any = function.__code__
    for found in dis.get_instructions(code):
        if found.opname == "RESUME" and found.arg is not None:
            if found.arg & _PLACE == _AT_START:
                raw = bytearray(code.co_code)
                raw[found.offset + 1] = found.arg | _INSIDE
                function.__code__ = code.replace(co_code=bytes(raw))
            break
    return function


@contextmanager
def collector_off() -> Iterator[None]:
    """Python's collector rests while a great many objects are made that all stay; it would look
    through them a hundred times. They are among the oldest afterwards: it does not look at once.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            if not gc.get_freeze_count():  # else a program keeps objects from the collector itself
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _held_by_variable() -> int:
    thing = object()
    return sys.getrefcount(thing)


def _held_by_argument() -> int:
    def asked(thing: object) -> int:
        return sys.getrefcount(thing)

    thing = object()
    return asked(thing)


def _held_by_attribute() -> int:
    class Holder:
        __slots__ = ("thing",)

    holder: Any = Holder()
    holder.thing = object()
    return sys.getrefcount(holder.thing)


def _held_by_call() -> int:
    class Thing:
        pass

    thing = Thing()
    return next(map(sys.getrefcount, map(call, (ref(thing),)))) - 1


require()

# What `sys.getrefcount` gives for an object that nobody holds but
HELD_BY_VARIABLE: Final = _held_by_variable()  # the variable named in the call: 2, from 3.14 on 1
HELD_BY_ARGUMENT: Final = _held_by_argument()  # a parameter, and a variable of the caller's: 3 or 1
HELD_BY_ATTRIBUTE: Final = _held_by_attribute()  # the attribute named in the call: 2
HELD_BY_CALL: Final = _held_by_call()  # what a function of C has it from, asked by `map`: 1
