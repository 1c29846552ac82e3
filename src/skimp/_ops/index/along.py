"""What gather reads and scatter writes: elements along a dim where an index tells; whole rows where
it was expanded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.eval.positions import Along, bits, boxes, in_boxes, span
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array
from skimp._kernels import shaping
from skimp._kernels.rows import NARROW, Give, merge_rows, taking


def is_half(a: Array) -> bool:
    """Whether sums in this type lose what float32 keeps: of 4,096 bfloat16 terms two thirds."""
    return dtypes.FROM_NUMPY.get(a.dtype) in dtypes.HALVES


def _whole_rows(a: Array, dim: int, index: Array) -> bool:
    """Whether the index is an expanded one that tells rows of a row-major array."""
    return (
        dim == 0
        and index.ndim > 1
        and index.shape[1:] == a.shape[1:]
        and a.flags.c_contiguous
        and not any([step and n > 1 for step, n in zip(index.strides[1:], a.shape[1:])])  # noqa: B905
        and bool(index.size)
    )


def _rows(a: Array) -> Array:
    return a.reshape(len(a), -1)


def read_along(target: Array, source: Array, dim: int, index: Array) -> None:
    """`target` (row-major) becomes the elements of `source` along `dim` at `index`."""
    if source.ndim == 0:
        source = source.reshape(1)
    if index.ndim == 0:
        index, target = index.reshape(1), target.reshape(1)
    if _whole_rows(source, dim, index):
        _rows(source).take(_rows(index)[:, 0], 0, out=_rows(target), mode="clip")
        return
    memory, places = span(source), Along(source, dim, index)

    def work(box: Any) -> None:
        np.take(memory, places(box), out=target[box], mode="clip")

    in_boxes(target.shape, work)


def write_along(target: Array, dim: int, index: Array, source: Any, ufunc: Any = None) -> None:
    """Put (or with a ufunc merge) `source`, an array or a 0-d one, into `target` along `dim` at
    `index`, in C order. Sums and products of half precision are rounded once, as PyTorch's.
    """
    if ufunc is not None and is_half(target):
        wide = target.astype(np.float32)
        write_along(wide, dim, index, source, ufunc)
        target[...] = wide
        return
    if target.ndim == 0:
        target = target.reshape(1)
    if index.ndim == 0:
        index = index.reshape(1)
    if ufunc is not None and _whole_rows(target, dim, index) and _is_table(source, target):
        give = taking(_rows(source)) if source.ndim else _filling(source)
        merge_rows(_rows(target), _rows(index)[:, 0], give, ufunc)
        return
    if isinstance(source, np.ndarray) and source.ndim == 0:
        source = shaping.broadcast(source, index.shape)
    memory, places = span(target), Along(target, dim, index)
    if ufunc is None:
        memory, source = bits(memory), bits(source)
    for box in boxes(index.shape):
        at = places(box).reshape(-1)
        values = source[
            tuple([slice(c.start, min(c.stop, n)) for c, n in zip(box, index.shape, strict=True)])
        ]
        if ufunc is None:
            memory[at] = values.reshape(-1)
        else:
            ufunc.at(memory, at, values.reshape(-1).astype(memory.dtype, copy=False))


def _is_table(source: Array, target: Array) -> bool:
    """Whether rows are long, and a source is one number, or has rows that can be taken as they lie
    and are the target's in shape; of the target's type.
    """
    fits = not source.ndim or source.shape[1:] == target.shape[1:]
    long = target.size >= NARROW * len(target)
    typed = source.dtype == target.dtype or is_half(source)
    return fits and long and typed and source.flags.c_contiguous


def _filling(number: Array) -> Give:
    return lambda numbers, out: out.fill(number)
