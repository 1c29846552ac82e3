"""Products of two tensors that nobody is asked about: of linear maps, of `@`, and of the gradients
of both. What follows from shapes, strides and types is found once, and remembered as a plan.

Where the plan is oneDNN's, a factor is the address of its first element: no array is made of what
is large, no tensor of a transpose. Else NumPy or BLAS multiplies arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.copy import copy
from skimp._engine.memory.layout import Layout, contiguous_strides, nbytes_needed
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import blas, gemm, openblas, shaping
from skimp._kernels.blas import multiply
from skimp._kernels.products import FIRST, SECOND, has_unit_stride

Ints = tuple[int, ...]

# The result of factors as they are; its transpose; of what is matrices by the last dims, a matrix,
# or in the shape of the first but for its last dim.
PLAIN, TURNED, ROWS, LIKE_FIRST = range(4)
_at: Final[Any] = c_char.from_buffer


class _Plan(NamedTuple):
    """What follows from how two factors lie."""

    make: Callable[[int, int, int, int, bool], None] | None  # of addresses, where that is to be had
    flipped: int
    seen: int
    shape: Ints  # of the result
    strides: Ints | None  # if it is not row-major
    item: int  # bytes of an element
    first: Any  # where a factor's array begins, if it has gaps
    needs_first: int  # bytes from there on
    second: Any
    needs_second: int


def planned(
    one: Tensor,
    other: Tensor,
    flipped: int,
    seen: int = PLAIN,
    shape: Ints | None = None,
    bias: Array | None = None,
    least: int = 0,
) -> Tensor | None:
    """The product, not recorded, of two tensors of floats, of which the `FIRST`, the `SECOND` or
    `NEITHER` is transposed, if BLAS reads both where they lie.

    `shape`: of the result, if it is another one of as many elements. `bias`: what is added to each
    row, before the product (`gemm`). `least`: elements that the larger factor has, of a product of
    several rows and columns; both are row-major then, if they are seen as matrices.
    """
    dtype = one._dtype
    if dtype is not other._dtype or not (type(one) in ORDINARY and type(other) in ORDINARY):
        return None
    x, y = one._np, other._np
    from_x = from_y = 0
    if x is not None:
        x_shape, x_strides = x.shape, x.strides
    else:
        x_shape, x_strides, from_x = one._skimp_layout  # type: ignore[misc]
    if y is not None:
        y_shape, y_strides = y.shape, y.strides
    else:
        y_shape, y_strides, from_y = other._skimp_layout  # type: ignore[misc]
    plan = _plan(
        x_shape, x_strides, x is None, y_shape, y_strides, y is None, dtype, flipped, seen, shape,
        None if bias is None else bias.shape, least,
    )  # fmt: skip
    if plan is None or (one._skimp_marked and one._skimp_neg):
        return None
    if other._skimp_marked and other._skimp_neg:
        return None
    if plan.make is None:
        return _by_arrays(plan, one, other, bias)
    if x is None:
        flat = one._storage._flat
        x, from_x = one._storage.flat() if flat is None else flat, from_x * plan.item
        if from_x + plan.needs_first > x.size:  # it was resized
            return None
    elif plan.first is not None:
        x = x[plan.first]
    if y is None:
        flat = other._storage._flat
        y, from_y = other._storage.flat() if flat is None else flat, from_y * plan.item
        if from_y + plan.needs_second > y.size:
            return None
    elif plan.second is not None:
        y = y[plan.second]
    made, array = blank(plan.shape, dtype, plan.strides)
    if bias is not None:
        copy(array, bias)
    try:
        if shaping.IN_C:
            at_x, at_y, at = shaping.addresses(x, y, array)
        else:  # the same, written out
            at_x, at_y = addressof(_at(x)), addressof(_at(y))
            at = addressof(_at(array if plan.strides is None else array.T))
    except (TypeError, ValueError):  # read-only
        at_x, at_y, at = shaping.addresses(x, y, array)
    threads = blas.threads_for_products()
    plan.make(at_x + from_x, at_y + from_y, at, threads, bias is not None)
    return made


def _by_arrays(plan: _Plan, one: Tensor, other: Tensor, bias: Array | None) -> Tensor:
    x, y = _factors(one._skimp_array(), other._skimp_array(), plan.flipped, plan.seen)
    made, array = blank(plan.shape, one._dtype, plan.strides)
    into = _place(array, x, y, plan.seen)
    if bias is None:
        multiply(x, y, into)
    else:
        copy(array, bias)
        gemm.add_product(x, y, into)
    return made


def _factors(x: Array, y: Array, flipped: int, seen: int) -> tuple[Array, Array]:
    """The matrices that are multiplied, which BLAS reads where these lie."""
    if seen >= ROWS:
        x = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        y = y if y.ndim == 2 else y.reshape(-1, y.shape[-1])
    if flipped == FIRST:
        x = x.swapaxes(-1, -2)
    elif flipped == SECOND:
        y = y.swapaxes(-1, -2)
    return x, y


def _place(array: Array, x: Array, y: Array, seen: int) -> Array:
    """Where their product goes in the result's array."""
    if seen == TURNED:
        return array.T
    return array.reshape(*x.shape[:-1], y.shape[-1])


@lru_cache(4096)
def _plan(
    x_shape: Ints, x_strides: Ints, x_large: bool, y_shape: Ints, y_strides: Ints, y_large: bool,
    dtype: dtypes.dtype, flipped: int, seen: int, shape: Ints | None, adds: Ints | None, least: int,
) -> _Plan | None:  # fmt: skip
    """The plan for factors of these shapes and strides, which are in elements of what is large;
    None where BLAS can't read both, or they don't fit. `adds`: the shape of what is added.
    """
    item = dtype.itemsize
    if dtype not in dtypes.FLOATING or min(len(x_shape), len(y_shape)) < 2:
        return None
    x = _like(x_shape, x_strides, item if x_large else 1, dtype)
    y = _like(y_shape, y_strides, item if y_large else 1, dtype)
    for each in (x, y):
        in_rows = least or each.ndim > 2 if seen >= ROWS else False
        if not (each.size and (each.flags.c_contiguous or (not in_rows and has_unit_stride(each)))):
            return None
    a, b = _factors(x, y, flipped, seen)
    (rows, depth), (depth_too, columns) = a.shape[-2:], b.shape[-2:]
    if depth != depth_too or a.shape[:-2] != b.shape[:-2]:
        return None
    if least and not (min(rows, columns, depth) > 1 and max(a.size, b.size) >= least):
        return None
    if adds is not None and (adds != (columns,) or openblas.gemm_of(dtype.np.char) is None):
        return None
    strides = None
    if seen == TURNED:
        shape, strides = (columns, rows), (1, columns)
    elif shape is None:
        shape = (*x_shape[:-1], columns) if seen == LIKE_FIRST else (*a.shape[:-1], columns)
    whole = (*a.shape[:-1], columns)
    out = whole, tuple([s * item for s in contiguous_strides(whole)])
    lies = (a.shape, a.strides), (b.shape, b.strides), out
    make = blas.by_address(dtype.np.char, *lies, adds is not None)
    first, needs_first = _begins(x, x_large)
    second, needs_second = _begins(y, y_large)
    return _Plan(
        make, flipped, seen, shape, strides, item, first, needs_first, second, needs_second
    )


def _like(shape: Ints, strides: Ints, unit: int, dtype: dtypes.dtype) -> Array:
    """An array that lies so, to ask it: there is nothing in it."""
    number, lies = np.empty((), dtype.np), [s * unit for s in strides]
    return np.lib.stride_tricks.as_strided(number, shape, lies)


def _begins(x: Array, large: bool) -> tuple[Any, int]:
    """The index of the first element alone, of an array with gaps; and the bytes from there on."""
    layout = Layout(x.shape, tuple([s // x.itemsize for s in x.strides]), 0)
    index = None if large or x.flags.c_contiguous else (*(0,) * x.ndim, ...)
    return index, nbytes_needed(layout, x.itemsize)
