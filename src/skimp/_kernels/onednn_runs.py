"""A primitive of oneDNN (`onednn`) on arrays whose addresses are told each time, by any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.scratch import Scratch

_BYTES: Final = np.dtype(np.uint8)


class Runs:
    """A primitive, and the arguments of those who don't run it now.

    `layouts` of its arguments, by their numbers.
    """

    __slots__ = ("_idle", "_layouts", "_primitive")

    def __init__(self, primitive: onednn.Primitive, layouts: dict[int, onednn.Handle]) -> None:
        self._primitive, self._layouts = primitive, layouts
        self._idle: list[_Run] = []

    def make(self, addresses: Sequence[int]) -> None:
        """Compute on the thread that asks, of arguments at these addresses."""
        try:
            run = self._idle.pop()
        except IndexError:  # there is none yet, or other threads use them
            run = _Run(self._primitive, self._layouts)
        onednn.use_threads(1)
        scratch = self._primitive.scratch
        if scratch:
            with Scratch((scratch,), _BYTES) as room:
                run.make(addresses, shaping.address(room))
        else:
            run.make(addresses, 0)
        self._idle.append(run)


class _Run:
    __slots__ = ("_arguments", "_memories", "_stream")

    def __init__(self, primitive: onednn.Primitive, layouts: dict[int, onednn.Handle]) -> None:
        self._memories = [onednn.Memory(layout.value) for layout in layouts.values()]
        self._arguments = onednn.Arguments(
            primitive, list(zip(layouts, self._memories, strict=True))
        )
        self._stream = onednn.stream()

    def make(self, addresses: Sequence[int], scratch: int) -> None:
        for memory, address in zip(self._memories, addresses, strict=True):
            memory.at(address)
        self._arguments.run(self._stream, scratch)
