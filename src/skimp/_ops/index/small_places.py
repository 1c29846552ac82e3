"""Small row-major arrays at the places that index tensors say: what the fast paths of indexing read
of an index, and how `index_put` writes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.dispatch.view_forms import small_array
from skimp._engine.eval.positions import counted_from_front, first_outside
from skimp._engine.memory.layout import broadcast_shapes
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled, shaping
from skimp._kernels.order import farthest
from skimp._kernels.rows import add_rows, add_slices, are_distinct
from skimp.config import config

_NUMBERS = {int}
_SERIES = frozenset({tuple, list})
SEQUENCES = frozenset({list, range})


def small_list(index: list[Any] | range) -> Tensor | None:
    """A list of ints, or a range, as positions; None for any other."""
    if not index or (type(index) is list and set(map(type, index)) != _NUMBERS):
        return None
    try:
        return fresh(np.array(index, np.int64), dtypes.int64)
    except OverflowError:  # the general way has PyTorch's words
        return None


def index_arrays(indices: Any, x: Array) -> tuple[Array, ...] | None:
    """The arrays of an index that `picked` is for, positions as int64."""
    if type(indices) not in _SERIES or not 0 < len(indices) <= x.ndim:
        return None
    arrays = []
    for one in indices:
        if type(one) is not Tensor:
            return None
        a = one._np if one._np is not None else small_array(one)
        if a is None or not a.ndim or (a.ndim > 1 and not a.flags.c_contiguous):
            return None
        if one._dtype is dtypes.int32:
            a = a.astype(np.int64)
        elif one._dtype is not dtypes.int64 and (
            one._dtype is not dtypes.bool or len(indices) > 1 or a.shape != x.shape[: a.ndim]
        ):
            return None
        arrays.append(a)
    return tuple(arrays)


def small_put(x: Array, indices: Any, values: Any, accumulate: bool = False) -> bool:
    """Whether `index_put_` is done: all small and apart, and tensors for dims that follow."""
    if type(values) is not Tensor or type(indices) not in _SERIES or not indices:
        return False
    source = values._np if values._np is not None else small_array(values)
    if source is None or source.dtype != x.dtype:
        return False
    lead = 0 if indices[0] is not None else _leading(indices)
    arrays = index_arrays(indices[lead:] if lead else indices, x)
    if not arrays or not source.size or lead + len(arrays) > x.ndim:
        return False
    if any([bare.may_share_memory(x, one) for one in (source, *arrays)]):
        return False
    if arrays[0].dtype == bool:
        return not lead and _put_masked(x, arrays[0], source, accumulate)
    try:
        shape = broadcast_shapes(*[a.shape for a in arrays])
        shape = (*x.shape[:lead], *shape, *x.shape[lead + len(arrays) :])
        if source.shape != shape:
            if math.prod(shape) >= config.small_below:
                return False
            source = shaping.broadcast(source, shape)
        _put(x, lead, arrays, source, accumulate)
    except (IndexError, RuntimeError, ValueError):  # the general way has PyTorch's words
        return False
    return True


def write_places(x: Array, lead: int, arrays: tuple[Array, ...], source: Array) -> bool:
    """Whether elements are written to the places that arrays say after so many whole dims."""
    if arrays[0].dtype == bool:
        return not lead and _put_masked(x, arrays[0], source, False)
    _put(x, lead, arrays, source, False)
    return True


def _put_masked(x: Array, mask: Array, source: Array, accumulate: bool) -> bool:
    shape = (bare.count_nonzero(mask), *x.shape[mask.ndim :])
    if source.shape != shape:
        if source.ndim > len(shape):
            return False
        try:
            source = shaping.broadcast(source, shape)
        except ValueError:  # the general way has PyTorch's words
            return False
    if not accumulate:
        x[mask] = source
    elif x.dtype.kind in "fiu":
        x[mask] += source
    else:
        return False
    return True


def _put(x: Array, lead: int, arrays: tuple[Array, ...], source: Array, accumulate: bool) -> None:
    whole: tuple[Any, ...] = (slice(None),) * lead
    if not accumulate:
        x[whole + arrays] = source
        return
    if len(arrays) > 1:
        np.add.at(x, whole + arrays, source)
        return
    rows, n = arrays[0].reshape(-1), x.shape[lead]
    loops = None if lead or not x.size else compiled.taking(x)
    if loops is not None:  # the same bits, as rows are added one after the other
        given = np.ascontiguousarray(source).reshape(rows.size, -1)
        if loops.added(x.reshape(n, -1), np.ascontiguousarray(rows), given):
            return
    if farthest(rows) >= n:
        rows = counted_from_front(rows, n)
        if first_outside(rows, 0, n) is not None:
            raise IndexError
    source = source.reshape((*x.shape[:lead], rows.size, *x.shape[lead + 1 :]))
    if are_distinct(rows):
        x[(*whole, rows)] += source
    elif lead:
        add_slices(x, lead, rows, source)
    else:
        add_rows(x, rows, source)


def _leading(indices: Any) -> int:
    """How many dims are whole before the first that tensors are for."""
    return next((i for i, one in enumerate(indices) if one is not None), len(indices))
