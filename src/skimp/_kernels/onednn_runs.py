"""Primitives of oneDNN (`onednn`) on arrays whose addresses are told each time, by any thread."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled, onednn, shaping, signals, teams
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import Call, alone
from skimp.config import config

_BYTES: Final = np.dtype(np.uint8)
_PRODUCTS: Final = b"gemm"  # how the name of code begins that signals are kept from
SHARED: Final = 1 << 20  # elements of a pass that threads share, who may have to be woken


def together(large: bool) -> int:
    """How many threads work together on what is large: one where our own share work already."""
    return teams.size(config.threads) if large and alone() else 1


Spot = tuple[onednn.Memory, int, int]  # which of the addresses it lies at, and how far behind
Calls = tuple[list[Spot], list[Call]]  # where memory lies, and what is then called


class Steps:
    """What is called, some calls after others, once memory is told where it lies now."""

    __slots__ = ("_kept", "_parts", "_run")

    def __init__(self, parts: list[Calls], kept: Any) -> None:
        self._parts, self._kept = parts, kept
        loops = compiled.loops()
        self._run = None if loops is None else partial(loops.executed, self._plan())

    def behind(self, places: Sequence[int]) -> list[Calls]:
        """The same calls, of what lies so many bytes behind the first elements of x, w, g and the
        bias."""
        places = *places, 0, 0
        return [
            ([(memory, base, at + places[base]) for memory, base, at in spots], calls)
            for spots, calls in self._parts
        ]

    def __call__(self, where: list[int]) -> None:
        run = self._run
        if not (self._by_ctypes(where) if run is None else run(where)):
            raise RuntimeError("oneDNN could not run a primitive that it made")

    def _by_ctypes(self, where: list[int]) -> bool:
        """Whether oneDNN could compute all. Most memory is where it was."""
        for spots, calls in self._parts:
            for memory, base, behind in spots:
                address = where[base] + behind
                if address != memory.address:
                    memory.put(memory.value, address)
                    memory.address = address
            for execute, code, on, count, arguments in calls:
                if execute(code, on, count, arguments):
                    return False
        return True

    def _plan(self) -> bytes:
        """The same as words, for `loops.executed`."""
        library = onednn.library()
        assert library is not None
        functions = library.dnnl_memory_set_data_handle, library.dnnl_primitive_execute
        words: list[Any] = [ctypes.cast(each, ctypes.c_void_p).value for each in functions]
        for spots, calls in self._parts:
            words += len(spots), len(calls)
            for memory, base, behind in spots:
                words += memory.value.value, base, behind
            for _, code, on, count, arguments in calls:
                words += code.value, on.value, count, ctypes.addressof(arguments)
        return array("q", words).tobytes()


class Runs:
    """A primitive, and the arguments of those who don't run it now.

    `layouts` of its arguments, by their numbers.
    """

    __slots__ = ("_idle", "_layouts", "_multiplies", "_primitive", "_put")

    def __init__(self, primitive: onednn.Primitive, layouts: dict[int, onednn.Handle]) -> None:
        self._primitive, self._layouts = primitive, layouts
        self._multiplies = (primitive.name or b"").startswith(_PRODUCTS)
        self._put = onednn.put_threads() or onednn.use_threads
        self._idle: list[Run] = []

    def make(self, addresses: Sequence[int], team: int = 1, room: int = 0) -> None:
        """Compute on the thread that asks, or on a team with it, of arguments at these
        addresses. `room`: where as much scratch memory as it takes lies, if there is any."""
        run = self._idle.pop() if self._idle else self.borrow()
        began = teams.begin() if team > 1 else None
        multiplies = self._multiplies and signals.here.apart  # which makes it so
        if team < 2:
            self._put(1)
        else:
            (signals.gather if multiplies else onednn.use_threads)(team)
        scratch = self._primitive.scratch
        if scratch and not room:
            own = take(scratch, _BYTES)
            run.make(addresses, shaping.address(own))
            give(own)
        else:
            run.make(addresses, room)
        if began is not None:
            teams.end(began)
        self._idle.append(run)

    def calls(self, addresses: Sequence[int], team: int = 1) -> list[Call]:
        """What `make` does, as calls of C that are still to be made, before others of oneDNN; none
        where it needs scratch memory, or signals are to be kept from it."""
        if self._primitive.scratch or self._multiplies:
            return []
        run = self.borrow()
        onednn.use_threads(team)
        return [run.call(addresses), (self._idle.append, run)]

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that a run takes."""
        return self._primitive.scratch

    def borrow(self) -> Run:
        """The primitive with arguments that nobody else tells, until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:  # there is none yet, or other threads use them
            return Run(self._primitive, self._layouts)

    def give(self, run: Run) -> None:
        """Give back what `borrow` returned. After an exception nobody need."""
        self._idle.append(run)


class Run:
    """A primitive with arguments whose addresses are told, by one thread at a time."""

    __slots__ = ("_call", "_make", "_place")

    def __init__(self, primitive: onednn.Primitive, layouts: dict[int, onednn.Handle]) -> None:
        memories = [onednn.Memory(layout.value) for layout in layouts.values()]
        arguments = onednn.Arguments(primitive, list(zip(layouts, memories, strict=True)))
        stream = onednn.stream()
        self._call = arguments.call(stream)
        spots = [(memory, place, 0) for place, memory in enumerate(memories)]
        self._place = Steps([(spots, [])], memories)
        if arguments.scratch is not None:
            spots = [*spots, (arguments.scratch, len(spots), 0)]
        self._make = Steps([(spots, [self._call])], (arguments, stream))

    def make(self, addresses: Sequence[int], scratch: int) -> None:
        """Compute."""
        self._make([*addresses, scratch])

    def call(self, addresses: Sequence[int]) -> Call:
        """`make` of what takes no scratch memory, as a call that is still to be made."""
        self._place([*addresses])
        return self._call
