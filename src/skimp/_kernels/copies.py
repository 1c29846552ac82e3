"""Copies between arrays of one type, whatever their strides."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled, sharing

Array = np.ndarray[Any, Any]
_MANY: Final = 1 << 12  # elements from which a copy is worth two views
_RUN: Final = 1 << 10  # bytes of a run that is moved as one item
_loops: Final = compiled.loops()


def moved(source: Array, out: Array) -> bool:
    """`put` by a loop that a team shares, where runs of memory go to memory that is another's;
    whether it is done."""
    if _loops is None:
        return False
    n = out.size
    if n < sharing.FROM:
        done: bool = _loops.moved(source, out, 1)
        return done
    if not _loops.moved(source, out, 1, True):  # for nothing a team must not be woken
        return False
    sharing.call(_loops.moved, n, sharing.BRIEF, source, out)
    return True


def put(source: Array, out: Array) -> None:
    """out[...] = source, of the same type, broadcast to it. Where nothing is compiled short runs of
    memory, such as the rows of heads that change places, are moved as one item each: NumPy takes
    half of its time for them.
    """
    if moved(source, out):
        return
    size = out.itemsize
    if (
        out.size >= _MANY
        and source.ndim == out.ndim > 1
        and source.shape == out.shape
        and source.strides[-1] == size == out.strides[-1]
        and out.shape[-1] * size <= _RUN
        and not (source.flags.c_contiguous and out.flags.c_contiguous)
        and not out.dtype.hasobject
    ):
        run = _items(out.shape[-1] * size)
        source, out = source.view(run), out.view(run)
    out[...] = source


@lru_cache
def _items(size: int) -> np.dtype[Any]:
    return np.dtype((np.void, size))


def dense(x: Array) -> Array:
    """A row-major copy."""
    made = np.empty(x.shape, x.dtype)
    put(x, made)
    return made


def reshaped(x: Array, sizes: tuple[int, ...]) -> Array:
    """The array in another shape: a view where strides allow it, else a row-major copy."""
    if x.size < _MANY or x.flags.c_contiguous:
        return x.reshape(sizes)
    try:
        return x.reshape(sizes, copy=False)
    except ValueError:
        return dense(x).reshape(sizes)
