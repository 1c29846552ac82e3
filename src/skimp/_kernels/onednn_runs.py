"""A primitive of oneDNN (`onednn`) on arrays whose addresses are told each time, by any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from skimp._kernels import onednn, shaping, signals, teams
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import Call, alone
from skimp.config import config

_BYTES: Final = np.dtype(np.uint8)
_PRODUCTS: Final = b"gemm"  # how the name of code begins that signals are kept from
SHARED: Final = 1 << 20  # elements of a pass that threads share, who may have to be woken


def together(large: bool) -> int:
    """How many threads work together on what is large: one where our own share work already."""
    return teams.size(config.threads) if large and alone() else 1


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

    __slots__ = ("_arguments", "_call", "_execute", "_memories", "_room", "_stream")

    def __init__(self, primitive: onednn.Primitive, layouts: dict[int, onednn.Handle]) -> None:
        self._memories = [onednn.Memory(layout.value) for layout in layouts.values()]
        self._arguments = onednn.Arguments(
            primitive, list(zip(layouts, self._memories, strict=True))
        )
        self._room = self._arguments.scratch
        self._stream = onednn.stream()
        self._execute, *self._call = self._arguments.call(self._stream)

    def make(self, addresses: Sequence[int], scratch: int) -> None:
        """Compute."""
        for memory, address in zip(self._memories, addresses, strict=True):  # `onednn.place`
            if address != memory.address:
                memory.put(memory.value, address)
                memory.address = address
        room = self._room
        if room is not None and room.address != scratch:
            onednn.place((room,), (scratch,))
        if self._execute(*self._call):
            raise RuntimeError("oneDNN could not run a primitive that it made")

    def call(self, addresses: Sequence[int]) -> Call:
        """`make` of what takes no scratch memory, as a call that is still to be made."""
        onednn.place(self._memories, addresses)
        return self._execute, *self._call
