"""Places and orders in small row-major arrays: the fast paths of `extremes.py`, `ordering.py` and
`one_hot`, with the bits of the general way.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.eval import ranks
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled
from skimp._kernels.scratch import starts
from skimp._ops.reduce.small import ROWS, WHOLE, floats, highest, row_major
from skimp._ops.reduce.small_sums import all_finite

ORDERED: Final = dtypes.FLOATING | WHOLE
_SORTED: Final = 1 << 12  # elements up to which sorting floats beats making integers of them
_KEPT: Final = 1 << 9  # places up to which each one's origin is kept, which spares an iterator
_FEW: Final = 16  # of a row that are kept in order while the others are looked at
_FAR: Final = 8  # times as many as are asked for are in a row, where it may not be sorted
# ns. The first of rows is looked for again and again: what that takes, each time, of each row (and
# an eighth of each number)
_ROUND: Final = (3000, 1000, 12)
_BOUND: Final = 25_000  # a row, of which only what is beyond a bound is sorted (and each number 1)


def place(find: str) -> Any:
    """`argmax` or `argmin`."""

    def fast(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        x = row_major(input, ORDERED)
        if x is None:
            return None
        if dim is None:
            return fresh(getattr(x, find)(), dtypes.int64) if keepdim is False else None
        if type(keepdim) is not bool or type(dim) is not int or not -x.ndim <= dim < x.ndim:
            return None
        return fresh(getattr(x, find)(dim, keepdims=keepdim), dtypes.int64)

    return fast


@lru_cache(maxsize=256)
def _origins(shape: tuple[int, ...], dim: int, k: int = 1) -> tuple[Array, int]:
    """Where the first element of each row along a dim lies in a row-major array, `k` times along
    the dim, and how far apart the elements of a row are.
    """
    first = np.arange(math.prod(shape)).reshape(shape)
    return first.take([0] * k, dim), math.prod(shape[dim % len(shape) + 1 :])


def extremes(find: str, input: Any, dim: Any, keepdim: Any) -> tuple[Tensor, Tensor] | None:
    """The largest or smallest of each row along a dim, and where it is."""
    x = row_major(input, ORDERED)
    if x is None or type(dim) is not int or not -x.ndim <= dim < x.ndim:
        return None
    if type(keepdim) is not bool:
        return None
    places = getattr(x, find)(dim, keepdims=keepdim)
    values = _picked(x, places, dim)
    return fresh(values, input._dtype), fresh(places, dtypes.int64)


def _picked(x: Array, places: Array, dim: int) -> Array:
    """One element of each row along a dim, by its place."""
    first, apart = _origins(x.shape, dim)
    at = places if apart == 1 else places * apart
    return x.reshape(-1).take(at + first.reshape(places.shape))


def in_order(x: Array | None, dtype: dtypes.dtype, dim: Any, descending: bool, k: int) -> Any:
    """The first k of each row along a dim, sorted, and where they are; ties keep their order. Rows
    with NaN, whose place depends on the direction, go the general way.
    """
    if x is None or type(dim) is not int or not -x.ndim <= dim < x.ndim:
        return None
    n = x.shape[dim]
    if not 0 < k <= n:
        return None
    if k == 1:
        return _first(x, dtype, dim, descending)
    if (found := topped(x, k, dim, descending)) is not None:
        return found
    if n > _FAR * k and dim in (-1, x.ndim - 1):
        many, sorting = x.size // n, x.size * n.bit_length()
        bounding = many * _BOUND + x.size if ranks.is_bounded(x.dtype, n, k) else sorting
        if _ROUND[0] + k * (_ROUND[1] + _ROUND[2] * many + x.size // 8) < min(sorting, bounding):
            return _one_by_one(x, dtype, descending, k)
        if bounding < sorting:
            return None  # as the general way does
    if x.size > _SORTED or (backwards := _backwards(x, dtype)) is None:
        return None
    places = (backwards(x) if descending else x).argsort(dim, "stable")
    if k < n:
        places = places.take(starts(k, 1), dim)
    first, apart = _origins(x.shape, dim, k if places.size <= _KEPT else 1)
    at = (places if apart == 1 else places * apart) + first
    return fresh(x.ravel().take(at), dtype), fresh(places, dtypes.int64)


def _first(x: Array, dtype: dtypes.dtype, dim: int, descending: bool) -> Any:
    """`in_order` where one of each row is asked for."""
    places = (x.argmax if descending else x.argmin)(dim, keepdims=True)
    values = _picked(x, places, dim)
    if dtype not in WHOLE and not all_finite(values):
        return None
    return fresh(values, dtype), fresh(places, dtypes.int64)


def topped(x: Array | None, k: int, dim: Any, descending: bool) -> Any:
    """`in_order` of few of rows of float32, by a loop that keeps the first so far in order; None of
    any other."""
    loops = compiled.loops() if 1 < k <= _FEW and x is not None else None
    found = None if loops is None else loops.topped(x, k, dim, descending)
    return found and (fresh(found[0], dtypes.float32), fresh(found[1], dtypes.int64))


def _one_by_one(x: Array, dtype: dtypes.dtype, descending: bool, k: int) -> Any:
    """`in_order` along the last dim: what was found is put out of the way of the next. None where
    that can't be told from the numbers, or some may be NaN."""
    rows = x.reshape(-1, x.shape[-1]).copy()
    begins = starts(*rows.shape)
    lowest, highest = _ends(dtype)
    gone = lowest if descending else highest
    find, flat = rows.argmax if descending else rows.argmin, rows.ravel()
    found = np.empty((k, len(rows)), np.int64)
    for at in found:
        find(1, at)
        bare.add(at, begins, at)
        flat[at] = gone
    at = found.T.copy().reshape((*x.shape[:-1], k))
    values = x.ravel().take(at)
    if (gone in values) if dtype in WHOLE else not all_finite(values):
        return None
    places = bare.subtract(at, _origins(x.shape, -1, k if at.size <= _KEPT else 1)[0])
    return fresh(values, dtype), fresh(places, dtypes.int64)


@lru_cache(maxsize=8)
def _ends(dtype: dtypes.dtype) -> tuple[Array, Array]:
    """What no number of the type is below, or above."""
    if dtype not in WHOLE:
        return np.array(-math.inf, dtype.np), np.array(math.inf, dtype.np)
    limits = np.iinfo(dtype.np)
    return np.array(limits.min, dtype.np), np.array(limits.max, dtype.np)


def _backwards(x: Array, dtype: dtypes.dtype) -> Any:
    """What turns the order of values round; None where some are NaN, or may be."""
    if dtype in WHOLE:
        return np.invert  # the negative of the least integer is itself
    return np.negative if all_finite(x) else None


def ranked(input: Any, dim: Any, keepdim: Any, k: int) -> tuple[Tensor, Tensor] | None:
    """The k-th smallest (from 0) of each row along a dim, the first of those that are equal to have
    this rank, and where it is.
    """
    x = floats(input)
    if x is None or x.size > _SORTED or input._dtype is not dtypes.float32:
        return None  # of longer types positions of what is equal are in no order (`eval/ranks.py`)
    if type(dim) is not int or type(keepdim) is not bool or not -x.ndim <= dim < x.ndim:
        return None
    if not 0 <= k < x.shape[dim] or not all_finite(x):
        return None
    places = x.argsort(dim, "stable").take([k] if keepdim else k, dim)
    values = _picked(x, places, dim)
    return fresh(values, input._dtype), fresh(places, dtypes.int64)


def places_in_order(x: Array, dtype: dtypes.dtype, dim: Any, descending: bool) -> Array | None:
    """Where the values of each row along a dim come from, sorted; ties keep their order."""
    if type(dim) is not int or not -x.ndim <= dim < x.ndim or not 0 < x.size <= _SORTED:
        return None
    if dtype not in ORDERED or not x.flags.c_contiguous:
        return None
    backwards = _backwards(x, dtype)
    return backwards and (backwards(x) if descending else x).argsort(dim, "stable")


def one_hot(input: Any, num_classes: Any = -1) -> Tensor | None:
    """`one_hot` where no class is beyond the number of them."""
    x = input._np
    if x is None or input._dtype is not dtypes.int64 or type(num_classes) is not int or not x.size:
        return None
    if num_classes == -1:
        num_classes = int(highest(x, None)) + 1
    if num_classes < 1 or x.size * num_classes > ROWS:
        return None
    found = bare.equal(x[..., None], starts(num_classes, 1), order="C")
    if bare.count_nonzero(found) != x.size:
        return None
    return fresh(found.astype(np.int64), dtypes.int64)
