"""Runs of C order of an array or of an expression, for who reads them one after the other."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from skimp._engine.eval.convert import convert
from skimp._engine.eval.expr import COPY, Array, Expr, Leaf, Shape
from skimp._engine.eval.plan import Prepared, prepare
from skimp._engine.eval.run import usual_block
from skimp._engine.eval.runner import Runner
from skimp._kernels.scratch import give, spares, take
from skimp._kernels.threads import share


class Reader:
    """Materializes runs of C order of an array or an expression to one thread, in `dtype`.

    An array that is C-contiguous and of that type is read where it is; all else goes through
    buffers that the next call overwrites. `most` is the number of elements of the longest run.
    """

    def __init__(
        self,
        source: Expr | Array,
        prepared: Prepared | None,
        most: int,
        dtype: np.dtype[Any],
        buffers: list[Array] | None = None,
    ) -> None:
        self._flat = source.reshape(-1) if isinstance(source, np.ndarray) and not prepared else None
        self._prepared = prepared
        if buffers is None:
            buffers = [take(*one) for one in _buffers_of(source, prepared, most, dtype)]
        self._buffers: Final = buffers
        if prepared is not None:
            registers = len(prepared.plan.scratch)
            self._runner = Runner(prepared, buffers[:registers])
            self._buffer = buffers[registers]
        self._converted = buffers[-1] if dtype != source.dtype else None

    def close(self) -> None:
        """Give the buffers back; the reader is of no use any more."""
        for buffer in self._buffers:
            give(buffer)

    def run(self, start: int, stop: int) -> Array:
        """The elements start..stop of C order, as a contiguous 1-d array."""
        if self._flat is not None:
            return self._typed(self._flat[start:stop])
        self._fill(start, stop, self._buffer)
        return self._typed(self._buffer[: stop - start])

    def _typed(self, block: Array) -> Array:
        if self._converted is None:
            return block
        converted = self._converted[: block.size].reshape(block.shape)
        convert(block, converted)
        return converted

    def rows(self, first: int, pitch: int, start: int, stop: int, width: int) -> Array:
        """Rows start..stop of `width` elements, row i at first + i * pitch, as a 2-d array."""
        if self._flat is not None:
            top, left = divmod(first, pitch)
            table = self._flat.reshape(-1, pitch)
            return self._typed(table[top + start : top + stop, left : left + width])
        block = self._buffer[: (stop - start) * width].reshape(-1, width)
        for row, line in zip(range(start, stop), block, strict=True):
            self._fill(first + row * pitch, first + row * pitch + width, line)
        return self._typed(block)

    def _fill(self, start: int, stop: int, buffer: Array) -> None:
        """Write the elements start..stop of C order to the beginning of `buffer`."""
        assert self._prepared is not None
        plan = self._prepared.plan
        runner = self._runner
        filled = 0
        for corner, shape in boxes(plan.domain, start, stop, math.prod(plan.block)):
            length = math.prod(shape)
            box = tuple([slice(at, at + size) for at, size in zip(corner, shape, strict=True)])
            out = buffer[filled : filled + length].reshape(shape)
            runner.run(box, shape, (shape, corner[1:]) if plan.once else shape, [out])
            filled += length


def _buffers_of(
    source: Expr | Array, prepared: Prepared | None, most: int, dtype: np.dtype[Any]
) -> list[tuple[int, np.dtype[Any]]]:
    """The lengths and types of a Reader's buffers."""
    found = []
    if prepared is not None:
        plan = prepared.plan
        found = [(plan.length, register) for register in plan.scratch]
        found.append((most, source.dtype))
    if dtype != source.dtype:
        found.append((most, dtype))
    return found


def spare_reader(
    source: Expr | Array, prepared: Prepared | None, most: int, dtype: np.dtype[Any]
) -> Reader | None:
    """A reader, where there is room for its buffers."""
    buffers = spares(_buffers_of(source, prepared, most, dtype))
    return None if buffers is None else Reader(source, prepared, most, dtype, buffers)


def share_reading(
    first: Reader, work: Callable[[Reader], object], threads: int, rest: tuple[Any, ...]
) -> None:
    """`work` with a reader each, on so many threads. Helpers that find no room for the buffers of
    theirs, of the `rest`, leave all to the others.
    """

    def help_if_there_is_room() -> None:
        reader = spare_reader(*rest)
        if reader is not None:
            work(reader)

    share(partial(work, first), threads, help_if_there_is_room)


def prepare_runs(source: Expr | Array, most: int = sys.maxsize) -> Prepared | None:
    """The plan by which Readers materialize `source`, with registers of no more than `most`
    elements; None where it is read directly.
    """
    if isinstance(source, Expr):
        block = min(usual_block(math.prod(source.shape)), most)
        return prepare((source,), block=block, tiles=False)
    if source.flags.c_contiguous:
        return None
    return prepare((Expr(COPY, (Leaf(None, source),), source.shape, source.dtype),), tiles=False)


def boxes(domain: Shape, start: int, stop: int, most: int) -> Iterator[tuple[Shape, Shape]]:
    """Cover the elements start..stop of C order, in order, with boxes of at most `most` elements.

    Yields (corner, shape); every box is a run of C order itself.
    """
    pitches = [math.prod(domain[dim + 1 :]) for dim in range(len(domain))]
    last = len(domain) - 1
    while start < stop:
        left = min(stop - start, most)
        dim = next(
            (d for d, pitch in enumerate(pitches) if pitch <= left and start % pitch == 0), last
        )
        pitch = pitches[dim]
        corner = tuple([start // step % size for step, size in zip(pitches, domain, strict=True)])
        count = min(domain[dim] - corner[dim], left // pitch)
        yield corner, (1,) * dim + (count,) + domain[dim + 1 :]
        start += count * pitch
