"""Copies of one block: between types as PyTorch converts, and between transposed layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np

from skimp._engine.tensor import dtypes
from skimp._kernels import copies, halves, shaping
from skimp._kernels.scratch import Array, give, take

PAGE: Final = 4096
_PAD: Final = (
    64  # bytes between the rows of the staging area, so that a column is spread over the cache
)


def _by(dtype: Any) -> Callable[[Array], Array]:
    return lambda source: source.astype(dtype)


def _saturating(source: Array) -> Array:
    """What becomes a float8_e4m3fn, which has no infinity: too large numbers are its largest."""
    return np.clip(source.astype(np.float32), -448, 448)


def _power(source: Array) -> Array:
    """What becomes a float8_e8m0fnu, an exponent without a sign: the nearest power of two, of two
    equally near ones the larger unless it is the smallest of all; infinity becomes nan.
    """
    bits = source.astype(np.float32).view(np.uint32) & np.uint32(0x7FFFFFFF)
    exponent = bits >> np.uint32(23)
    rest = bits & np.uint32(0x7FFFFF)
    half = np.uint32(0x400000)
    exponent += (rest > half) | ((rest == half) & (exponent > 0))
    octets: Array = (
        np.minimum(exponent, np.uint32(255)).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
    )
    return octets


_WIDE: Final = _by(np.float32)
_E4M3: Final = np.dtype(ml_dtypes.float8_e4m3fn)
_E8M0: Final = np.dtype(ml_dtypes.float8_e8m0fnu)
_FLOAT8: Final = frozenset(d.np for d in dtypes.FLOAT8)

# What PyTorch converts through on its way from one type to another, where NumPy goes straight.
_THROUGH: Final[dict[tuple[np.dtype[Any], np.dtype[Any]], Callable[[Array], Array]]] = {
    (np.dtype(np.float64), np.dtype(np.uint8)): _by(np.int64),
    (np.dtype(np.float64), np.dtype(np.float16)): _WIDE,  # rounds twice
    **{
        (have, np.dtype(np.uint16)): _by(np.int32)
        for have in map(np.dtype, (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))
    },
    **{
        pair: _WIDE
        for each in _FLOAT8
        for d in dtypes.FROM_NUMPY
        for pair in ((each, d), (d, each))
    },
    **{(d, _E4M3): _saturating for d in dtypes.FROM_NUMPY},
    **{(d, _E8M0): _power for d in dtypes.FROM_NUMPY},
}


def convert(source: Any, out: Array) -> None:
    """Copy elements, converting as PyTorch does on x86 (complex to real keeps the real part).

    NumPy does the same, but warns about complex numbers and takes another way from float64.
    """
    want = out.dtype
    if source.dtype is not want:
        if source.dtype.kind == "c" and want.kind not in "cb":
            source = source.real
        through = _THROUGH.get((source.dtype, want))
        if through is not None:
            source = through(source)
        if not halves.put(source, out):
            out[...] = source
    else:
        copies.put(source, out)


def laid(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The memory of `array` under another shape and other strides (NumPy's function refuses types
    of one byte that it does not know).
    """
    if array.dtype.isbuiltin == 1 and array.size:
        if array.flags.c_contiguous:
            return np.ndarray(shape, array.dtype, array, 0, strides)
        base = array.base  # a fifth of the time that NumPy's function takes
        if type(base) is np.ndarray and base.flags.c_contiguous and base.dtype.isbuiltin == 1:
            begin = shaping.address(array) - shaping.address(base)
            return np.ndarray(shape, array.dtype, base, begin, strides)
    if array.dtype not in _FLOAT8:
        return np.lib.stride_tricks.as_strided(array, shape, strides)
    octets = np.lib.stride_tricks.as_strided(array.view(np.uint8), shape, strides)
    return octets.view(array.dtype)


def collides(stride: int) -> bool:
    """Whether elements this many bytes apart compete for the same few places in the cache."""
    return stride != 0 and stride % PAGE == 0


def turn(source: Array, out: Array) -> None:
    """`convert` for a transposed tile whose columns collide in the cache: by way of padded rows."""
    order = sorted(
        range(source.ndim), key=lambda dim: (source.shape[dim] > 1, -abs(source.strides[dim]))
    )
    turned = source.transpose(order)  # its last dim is the dense one
    width = turned.shape[-1] + _PAD // turned.itemsize
    area = take(turned.size // max(turned.shape[-1], 1) * width, turned.dtype)
    staged = area.reshape(*turned.shape[:-1], width)[..., : turned.shape[-1]]
    staged[...] = turned
    back = sorted(range(source.ndim), key=order.__getitem__)
    convert(staged.transpose(back), out)
    give(area)
