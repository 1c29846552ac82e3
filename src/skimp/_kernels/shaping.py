"""What NumPy makes of an array in Python, several times as long as a small array's work: views,
and its address.
"""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
_at: Final = c_char.from_buffer


def address(a: Array) -> int:
    """Where the first element is (`a.ctypes.data`)."""
    try:
        first: Any = a if a.flags.carray else a[(0,) * a.ndim + (...,)]
        return addressof(_at(first))
    except (TypeError, ValueError, IndexError):  # read-only, of a type that buffers lack, empty
        where: int = a.__array_interface__["data"][0]
        return where


def dim_first(a: Array, dim: int) -> Array:
    """The array with one of its dims first (`np.moveaxis`)."""
    dim %= a.ndim
    return a.transpose(dim, *range(dim), *range(dim + 1, a.ndim)) if dim else a


def dim_last(a: Array, dim: int) -> Array:
    """The array with one of its dims last; a number as one row."""
    if a.ndim < 2:
        return a if a.ndim else a.reshape(1)
    dim %= a.ndim
    if dim == a.ndim - 1:
        return a
    return a.transpose(*range(dim), *range(dim + 1, a.ndim), dim)


def broadcast(a: Array, shape: tuple[int, ...]) -> Array:
    """The array as `shape`, to be read (`np.broadcast_to`)."""
    if a.shape == shape:
        return a
    if not (a.size and a.flags.c_contiguous and a.ndim <= len(shape)):
        return np.broadcast_to(a, shape)
    strides = [0] * (len(shape) - a.ndim)
    for n, m, step in zip(a.shape, shape[len(strides) :], a.strides, strict=True):
        if n != m and n != 1:
            return np.broadcast_to(a, shape)  # which says so
        strides.append(step if n == m else 0)
    return np.ndarray(shape, a.dtype, a, 0, strides)


def along(a: Array, places: Array, dim: int) -> Array:
    """The elements at these places of one dim (`np.take_along_axis`)."""
    index = [np.arange(n).reshape(-1, *(1,) * (a.ndim - 1 - d)) for d, n in enumerate(a.shape)]
    index[dim] = places
    found: Array = a[tuple(index)]
    return found
