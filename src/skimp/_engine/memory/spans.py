"""Arrays over a storage's bytes, and an array's bytes as one run."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from skimp._engine.memory.layout import Layout, nbytes_needed

Array = np.ndarray[Any, Any]


def over(flat: Array, layout: Layout, dtype: np.dtype[Any]) -> Array:
    """An ndarray over a storage's bytes. RuntimeError: they are too few."""
    size = dtype.itemsize
    if 0 in layout.shape:
        return np.ndarray(layout.shape, dtype, flat if flat.size else None, 0, None)
    if not flat.size:  # NumPy would take such a buffer for one of any size
        raise _out_of_bounds(layout, size, 0)
    strides = _in_bytes(layout.strides, size)
    try:
        return np.ndarray(layout.shape, dtype, flat, layout.offset * size, strides)
    except (TypeError, ValueError):
        if nbytes_needed(layout, size) <= flat.size:
            raise
    raise _out_of_bounds(layout, size, flat.size)


@lru_cache(4096)
def _in_bytes(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple([s * itemsize for s in strides])


def _out_of_bounds(layout: Layout, itemsize: int, size: int) -> RuntimeError:
    return RuntimeError(
        f"setStorage: sizes {list(layout.shape)}, strides {list(layout.strides)}, storage offset "
        f"{layout.offset}, and itemsize {itemsize} requiring a storage size of "
        f"{nbytes_needed(layout, itemsize)} are out of bounds for storage of size {size}"
    )


def as_bytes(block: Array) -> Array:
    if block.flags.c_contiguous or block.flags.f_contiguous:
        return block.ravel("K").view(np.uint8)
    order = sorted(range(block.ndim), key=lambda d: -block.strides[d])
    dense = block.transpose(order)
    if dense.flags.c_contiguous:
        return dense.reshape(-1).view(np.uint8)
    span = (
        sum((n - 1) * s for n, s in zip(block.shape, block.strides, strict=True)) + block.itemsize
    )
    return np.asarray(_Span(block, 0 if block.size == 0 else span))


class _Span:
    """The bytes between an array's first and last element, gaps included, through NumPy's array
    interface.
    """

    def __init__(self, array: Array, nbytes: int) -> None:
        self.array = array
        address, readonly = array.__array_interface__["data"]
        self.__array_interface__ = {
            "data": (address, readonly),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


class Exported:
    """What an outsider's array has as its base, and so keeps the storage, all of it or `array` on
    its bytes. No array itself: NumPy would look past one.
    """

    __slots__ = ("bytes", "outsiders", "storage")

    def __init__(self, storage: Any, outsiders: object, array: Array | None = None) -> None:
        self.storage = storage
        self.outsiders = outsiders  # whoever counts who has it knows how many of these live
        self.bytes = storage.flat() if array is None else array  # also when the storage has others

    # NumPy's other interface is a dict, which takes it .8 us to make; no frame of Python's, either
    __array_struct__ = property(attrgetter("bytes.__array_struct__"))
