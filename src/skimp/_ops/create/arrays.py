"""NumPy arrays as tensors lie on them: the element type, the layout, what no tensor can lie on."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.memory import storage as storages
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, wrap
from skimp.config import config


def known(np_dtype: np.dtype[Any]) -> dtypes.dtype:
    """The element type of a NumPy dtype."""
    found = dtypes.FROM_NUMPY.get(np_dtype)
    if found is None:
        name = "void" if np_dtype.kind == "V" else np_dtype.type.__name__
        raise TypeError(
            f"can't convert np.ndarray of type numpy.{name}. The only supported "
            "types are: float64, float32, float16, complex64, complex128, int64, int32, int16, "
            "int8, uint64, uint32, uint16, uint8, and bool."
        )
    return found


def on_array(ndarray: Any) -> Tensor:
    """`from_numpy`, silent about arrays that are read-only: a write to the tensor shows in them, or
    raises where the bytes are no array's own (they may be a string's, or a file's).
    """
    if not ndarray.flags.writeable and _is_arrays(ndarray):
        # the interface has no word for bfloat16
        ndarray = np.asarray(Writable(ndarray)).view(ndarray.dtype)
    if type(ndarray) is np.ndarray and ndarray.flags.c_contiguous and ndarray.dtype.isnative:
        s, dtype = storages.external(ndarray), known(ndarray.dtype)
        if ndarray.size < config.small_below:
            t = wrap(s, None, dtype)
            t._np = ndarray
            return t
        return wrap(s, layout_of(ndarray), dtype)
    check_strides(ndarray)
    dtype = known(ndarray.dtype)
    plain = ndarray if type(ndarray) is np.ndarray else np.asarray(_Bytes(ndarray))
    return wrap(storages.external(plain), layout_of(plain), dtype)


class _Bytes:
    """The bytes of an array of a subclass (a masked one has ways of its own), which it keeps."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


class Writable(_Bytes):
    """The bytes of an array that NumPy has not been told may be written."""

    def __init__(self, array: Array) -> None:
        super().__init__(array)
        told = self.__array_interface__
        self.__array_interface__ = {**told, "data": (told["data"][0], False)}


def _is_arrays(ndarray: Array) -> bool:
    """Whether NumPy has made the memory, which then can be written."""
    owner: Any = ndarray
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner.base is None


def layout_of(ndarray: Array) -> Layout:
    """The array's layout in elements."""
    shape = ndarray.shape
    if ndarray.flags.c_contiguous or not ndarray.size:
        return Layout(shape, contiguous_strides(shape), 0)
    return Layout(shape, tuple([s // ndarray.itemsize for s in ndarray.strides]), 0)


def check_strides(ndarray: Array) -> None:
    """Refuse an array that no tensor can lie on: of foreign bytes, or strides that aren't whole
    numbers of elements from 0 up.
    """
    if not ndarray.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion "
            "between byte orders is currently not supported."
        )
    if ndarray.flags.c_contiguous and ndarray.size:
        return
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array  with array.copy().) "
        )
    if any(s % ndarray.itemsize for s in ndarray.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            "array to reallocate the memory."
        )
