"""Operands of ufuncs that are repeated between dims, laid out so that NumPy has long runs to go
through: it takes 10 to 20 ns for each run, whatever its length.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import copies, shaping

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Laid = tuple[Ints, Ints, int]  # shape, strides in bytes, size of an element

LEAST: Final = 1 << 13  # elements of a result from which it pays
_SHORT: Final = 64  # elements of a run that is short
_LONG: Final = 512  # of one that is worth the work
_MOST: Final = 1 << 16  # bytes that an operand may become


def in_runs(arrays: list[Array], like: Array, new: bool) -> list[Array]:
    """The operands of a ufunc whose result lies as `like`: one that is repeated between dims, as
    the angles of rotary embeddings are for each head, is laid out as often as that. One whose rows
    come in another order goes where the result will be, if that is `new` and may be an operand.
    """
    laid = tuple([(a.shape, a.strides, a.itemsize) for a in arrays])
    for place, order in _plan(laid, like.shape, like.strides, like.itemsize if new else 0):
        a, arrays = arrays[place], [*arrays]
        if order is not None:
            arrays[place] = _laid_out(a, like.shape, order)
        elif a.dtype == like.dtype:
            copies.put(a, like)
            arrays[place] = like
    return arrays


def _laid_out(a: Array, shape: Ints, order: Ints) -> Array:
    """The array as `shape`, in memory of its own for the dims of `order`, from the outside in."""
    a = shaping.broadcast(a, shape)
    one = a[tuple([slice(None) if d in order else 0 for d in range(a.ndim)])]
    kept = sorted(order)
    made = copies.dense(one.transpose([kept.index(d) for d in order]))
    strides = [0] * a.ndim
    for d, step in zip(order, made.strides, strict=True):
        strides[d] = step
    return np.ndarray(shape, a.dtype, made, 0, strides)


@lru_cache(maxsize=1024)
def _plan(
    arrays: tuple[Laid, ...], shape: Ints, strides: Ints, room: int
) -> tuple[tuple[int, Ints | None], ...]:
    """Which operands to lay out over which dims (from the outside in; None: in the place of the
    result, whose elements have `room` bytes) for a result of this shape and these strides; none
    where runs of memory are long already or don't become so.
    """
    dims = sorted([d for d, n in enumerate(shape) if n > 1], key=lambda d: -strides[d])
    steps = [_steps(own, by, shape) for own, by, _ in arrays]
    if not dims or _run([*steps, strides], shape, dims) >= _SHORT:
        return ()
    found: list[tuple[int, Ints | None]] = []
    for place, (own, (_, _, itemsize)) in enumerate(zip(steps, arrays, strict=True)):
        outer = next((i for i, d in enumerate(dims) if own[d]), len(dims))
        inner = dims[outer:]
        dense = _dense(shape, inner, itemsize)
        if any([not own[d] for d in inner]):
            size = itemsize * math.prod([shape[d] for d in inner])
            if size > _MOST or size * 4 > itemsize * math.prod(shape):
                return ()
            found.append((place, tuple(inner)))
        elif outer or own == dense or own[-1] != itemsize or room != itemsize:
            continue
        else:
            room = 0  # for one
            found.append((place, None))
        own[:] = dense
    return tuple(found) if _run([*steps, strides], shape, dims) >= _LONG else ()


def _dense(shape: Ints, order: list[int], itemsize: int) -> list[int]:
    """The strides of some dims, from the outside in, one after another."""
    strides, step = [0] * len(shape), itemsize
    for d in reversed(order):
        strides[d], step = step, step * shape[d]
    return strides


def _steps(own: Ints, strides: Ints, shape: Ints) -> list[int]:
    """The strides of an operand that is broadcast to `shape`."""
    more = len(shape) - len(own)
    return [0] * more + [s if n > 1 else 0 for n, s in zip(own, strides, strict=True)]


def _run(steps: list[Any], shape: Ints, dims: list[int]) -> int:
    """How many elements, from the innermost of `dims` outwards, all operands have as one run."""
    count, inside = 1, None
    for d in reversed(dims):
        if inside is not None and any([s[d] != s[inside] * shape[inside] for s in steps]):
            break
        count, inside = count * shape[d], d
    return count
