"""What NumPy makes of an array in Python, several times as long as a small array's work: views,
and its address.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char
from operator import attrgetter
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled

Array = np.ndarray[Any, Any]
_at: Final = c_char.from_buffer


def _address(a: Array) -> int:
    try:
        first: Any = a if a.flags.carray else a[(0,) * a.ndim + (...,)]
        return addressof(_at(first))
    except (TypeError, ValueError, IndexError):  # read-only, of a type that buffers lack, empty
        where: int = a.__array_interface__["data"][0]
        return where


def _addresses(*arrays: Any) -> list[int]:
    try:
        for a in arrays:
            if not a.flags.carray:
                break
        else:
            return list(map(addressof, map(_at, arrays)))
        return [addressof(_at(a if a.flags.carray else a[(0,) * a.ndim + (...,)])) for a in arrays]
    except (TypeError, ValueError, IndexError):
        return [_address(a) for a in arrays]


_loops: Final = compiled.loops()
IN_C: Final = _loops is not None  # where the functions below take as long as an attribute
# Where the first element is (`a.ctypes.data`); the same of each; whether it lies row by row.
address: Final[Callable[[Array], int]] = _loops.address if IN_C else _address
addresses: Final[Callable[..., list[int]]] = _loops.addresses if IN_C else _addresses
is_dense: Final[Callable[[Array], bool]] = (
    _loops.dense if IN_C else attrgetter("flags.c_contiguous")
)
# There alone: an array kept alive by an object; an array expanded to sizes.
kept_by: Final[Any] = _loops.kept_by if IN_C else None
expanded: Final[Any] = _loops.expanded if IN_C else None


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
