"""Rows of an array or of an expression, which is never written anywhere: handed over by blocks."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._engine.eval.expr import Array, Expr
from skimp._engine.eval.plan import Prepared
from skimp._engine.eval.program import BRIEF
from skimp._engine.eval.reader import Reader, prepare_runs, share_reading, spare_reader
from skimp._engine.eval.run import threads_for
from skimp._kernels import bare
from skimp._kernels.threads import quietly

_UNIT: Final = 1 << 19  # elements of the rows that are handed over at once


def map_rows(
    source: Expr | Array,
    fn: Any,
    outs: tuple[Array, ...],
    row_ndim: int,
    unit: int = _UNIT,
    group: int = 1,
    steps: int = BRIEF,
) -> None:
    """Call fn(block, *parts) for blocks of whole rows of `source`, of about `unit` elements, on as
    many threads as so many brief `steps` are worth.

    A row is the last `row_ndim` dims; a block has shape (rows, *row). Each array of `outs` begins
    with the dims before the row, and its part has them as one: (rows, *what follows). They may be
    read or written, and one may be the source's own memory, element for element. `fn` must treat
    rows alone, since blocks may hold any number of them, and must not change `block`, which may be
    the source. What `fn` adds up over rows it adds by `group`s of them, at whose bounds alone
    blocks begin and end: how rows are cut depends on the number of threads.
    """
    lead = len(source.shape) - row_ndim
    row_shape = source.shape[lead:]
    rows = math.prod(source.shape[:lead])
    length = math.prod(row_shape)
    if rows == 0:
        return
    flat = tuple(_rows_of(out, lead, rows) for out in outs)
    if length == 0:
        quietly(fn, np.empty((rows, *row_shape), source.dtype), *flat)
        return
    threads = threads_for(rows * length, steps)
    many = max(1, min(-(-rows // threads), unit // length) // group)
    first, prepared, step = _first_reader(source, many, group, length)
    blocks = range(0, rows, step)
    starts = iter(blocks)

    def work(reader: Reader) -> None:
        for start in starts:
            stop = min(start + step, rows)
            block = reader.run(start * length, stop * length).reshape(stop - start, *row_shape)
            fn(block, *[out[start:stop] for out in flat])
        reader.close()

    rest = source, prepared, step * length, source.dtype
    share_reading(first, work, min(threads, len(blocks)), rest)


def _first_reader(
    source: Expr | Array, many: int, group: int, length: int
) -> tuple[Reader, Prepared | None, int]:
    """A reader of so `many` groups of rows, or fewer where there is no room for them; its plan, and
    the number of rows.
    """
    prepared = prepare_runs(source)
    while True:
        step = many * group
        rest = source, prepared, step * length, source.dtype
        reader = spare_reader(*rest) if many > 1 else Reader(*rest)
        if reader is not None:
            return reader, prepared, step
        many = max(many // 4, 1)
        prepared = prepare_runs(source, many * group * length)


def is_one_block(rows: int, length: int) -> bool:
    """Whether `map_rows` has so many rows handed over at once, to the thread that asks."""
    return rows == 1 or (rows * length <= _UNIT and threads_for(rows * length) == 1)


def _rows_of(out: Array, lead: int, rows: int) -> Array:
    flat = out.reshape(rows, *out.shape[lead:])
    if not bare.may_share_memory(flat, out):
        raise ValueError(f"map_rows: out has strides {out.strides}; its rows must be evenly apart")
    return flat
