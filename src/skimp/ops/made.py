"""Results that an op fills itself: a tensor that nobody else has, with the array to write its elements to."""

from __future__ import annotations

import numpy as np

from skimp import dtypes
from skimp._tensor import Array, Tensor, empty, fresh
from skimp.memory import layout as layouts
from skimp.memory.storage import POOLED
from skimp.ops.pointwise import empty_dense

Ints = tuple[int, ...]


def made(shape: Ints, dtype: dtypes.dtype, strides: Ints | None = None) -> tuple[Tensor, Array]:
    """An uninitialised dense tensor, row-major by default, and its elements; a large one in a block of the pool."""
    if layouts.numel(shape) * dtype.itemsize < POOLED:
        array = np.empty(shape, dtype.np) if strides is None else empty_dense(shape, strides, dtype.np)
        return fresh(array, dtype), array
    t = empty(shape, dtype, strides)
    return t, t._storage.view(t.layout_of(), dtype.np)


def made_like(t: Tensor, dtype: dtypes.dtype | None = None) -> tuple[Tensor, Array]:
    """The same with the shape of `t`, and its strides where they are dense."""
    shape = tuple(t.shape)
    return made(shape, dtype or t._dtype, layouts.empty_like_strides(t.layout_of()))
