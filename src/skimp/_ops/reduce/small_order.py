"""Places and orders in small row-major arrays: the fast paths of `extremes.py`, `ordering.py` and
`one_hot`, with the bits of the general way.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._kernels.scratch import starts
from skimp._ops.reduce.small import ROWS, WHOLE, all_finite, floats, highest

_ORDERED: Final = dtypes.FLOATING | WHOLE
_SORTED: Final = 1 << 12  # elements up to which sorting floats beats making integers of them
_ALL: Final = slice(None)


def place(find: str) -> Any:
    """`argmax` or `argmin`."""

    def fast(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        x = input._np
        if x is None or input._dtype not in _ORDERED or not x.flags.c_contiguous or not x.size:
            return None
        if dim is None:
            return fresh(getattr(x, find)(), dtypes.int64) if keepdim is False else None
        if type(keepdim) is not bool or type(dim) is not int or not -x.ndim <= dim < x.ndim:
            return None
        return fresh(getattr(x, find)(dim, keepdims=keepdim), dtypes.int64)

    return fast


@lru_cache(maxsize=256)
def _origins(shape: tuple[int, ...], dim: int) -> tuple[Array, int]:
    """Where the first element of each row along a dim lies in a row-major array, with size 1 in
    place of the dim, and how far apart the elements of a row are.
    """
    first = np.arange(math.prod(shape)).reshape(shape)
    return first.take([0], dim), math.prod(shape[dim % len(shape) + 1 :])


def extremes(find: str, input: Any, dim: Any, keepdim: Any) -> tuple[Tensor, Tensor] | None:
    """The largest or smallest of each row along a dim, and where it is."""
    x = floats(input, _ORDERED)
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


def in_order(input: Any, dim: Any, descending: bool, k: int) -> tuple[Tensor, Tensor] | None:
    """The first k of each row along a dim, sorted, and where they are; ties keep their order. Rows
    with NaN, whose place depends on the direction, go the general way.
    """
    x = floats(input, _ORDERED)
    if x is None or x.size > _SORTED or type(dim) is not int or not -x.ndim <= dim < x.ndim:
        return None
    if not 0 < k <= x.shape[dim] or (backwards := _backwards(x, input._dtype)) is None:
        return None
    places = (backwards(x) if descending else x).argsort(dim, "stable")
    if k < x.shape[dim]:
        places = places[(*(_ALL,) * (dim % x.ndim), slice(k))].copy()
    first, apart = _origins(x.shape, dim)
    at = (places if apart == 1 else places * apart) + first
    return fresh(x.reshape(-1).take(at), input._dtype), fresh(places, dtypes.int64)


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
    """Where the values of each row along the last dim come from, sorted; ties keep their order."""
    if type(dim) is not int or dim not in (-1, x.ndim - 1) or not 0 < x.size <= _SORTED:
        return None
    if dtype not in _ORDERED or not x.flags.c_contiguous:
        return None
    backwards = _backwards(x, dtype)
    return backwards and (backwards(x) if descending else x).argsort(-1, "stable")


def one_hot(input: Any, num_classes: Any = -1) -> Tensor | None:
    """`one_hot` where no class is beyond the number of them."""
    x = input._np
    if x is None or input._dtype is not dtypes.int64 or type(num_classes) is not int or not x.size:
        return None
    if num_classes == -1:
        num_classes = int(highest(x, None)) + 1
    if num_classes < 1 or x.size * num_classes > ROWS:
        return None
    found = np.equal(x[..., None], starts(num_classes, 1), order="C")
    if bare.count_nonzero(found) != x.size:
        return None
    return fresh(found.astype(np.int64), dtypes.int64)
