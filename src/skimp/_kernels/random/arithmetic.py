"""The arithmetic of PyTorch's random kernels that NumPy lacks: fused multiply-add, C functions.

NumPy's own exp, log, sin, ... are vector versions that differ from the C library in the last bit;
PyTorch's scalar kernels call the C library. NumPy's complex functions and the standard library's
`math` call it too, so these give PyTorch's bits on any machine, whatever its C library is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare
from skimp._kernels.threads import quietly

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_LOW_BITS: Final = (1 << 29) - 1  # what float64 has below float32's last bit
_MIDPOINT: Final = 1 << 28
_SPLIT: Final = float((1 << 27) + 1)  # Dekker's constant for 53 bits
_SAFE: Final = 1e200  # beyond this (or below its inverse) Dekker's products may overflow
_EXP_SPLITS: Final = 700.0  # cexp scales its argument above 709


def flat(out: NDArray[Any]) -> NDArray[Any]:
    """The elements of a C-contiguous array in memory order, complex numbers as their two parts."""
    row = out.reshape(-1, copy=False)
    if row.dtype.kind != "c":
        return row
    return row.view(np.float32 if row.dtype == np.complex64 else np.float64)


def narrowed(values: F64, dtype: np.dtype[Any]) -> NDArray[Any]:
    """float64 cast as C++ casts it: to the 16-bit types by way of float32."""
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        values = quietly(values.astype, np.float32)
    made: NDArray[Any] = quietly(values.astype, dtype, "K", "unsafe", True, False)
    return made


def fma32(a: F32, b: np.float32, c: Any) -> F32:
    """a * b + c in float32, rounded once; c, one number or one for each, is float32's."""
    product = a.astype(np.float64)
    product *= float(b)  # exact: 48 bits
    total = product + c
    # Rounding to float64 and then to float32 errs only where the first lands on a midpoint.
    midpoints = (total.view(np.int64) & _LOW_BITS) == _MIDPOINT
    if bare.count_nonzero(midpoints):
        suspects = midpoints.nonzero()[0]
        at, lost = _two_sum(product[suspects], c[suspects] if c.ndim else c)
        if bare.count_nonzero(lost):  # what is exact there is rounded as it should be
            moved = np.nextafter(at, np.copysign(np.inf, lost))
            total[suspects] = bare.where(lost != 0, moved, at)
    rounded: F32 = total.astype(np.float32)
    return rounded


def fma64(a: F64, b: float, c: float) -> F64:
    """a * b + c in float64, rounded once (Boldo and Melquiond, "Emulation of FMA", 2008)."""
    if c == 0 or math.frexp(b)[0] in (0.5, 0.0):  # the product rounds once, or is exact
        return np.add(np.multiply(a, b), c)
    if not 1 / _SAFE < abs(b) < _SAFE or abs(c) > _SAFE or np.any(np.abs(a) > 1e90):
        return np.array([_fma_one(x, b, c) for x in a.tolist()], np.float64)
    product, product_low = _two_product(a, b)
    low, low_low = _two_sum(product_low, np.float64(c))
    high, high_low = _two_sum(product, low)
    return high + _to_odd(*_two_sum(low_low, high_low))


def log_below_one(v: F64) -> F64:
    """The C library's log(v) of v in [0, 1] that are multiples of 2**-53."""
    # NumPy's complex log1p is log(hypot(re + 1, im)); v - 1 is exact for such v.
    shifted = (v - 1.0).astype(np.complex128)
    with np.errstate(divide="ignore"):
        return np.log1p(shifted).real


def cos_sin(angle: F64) -> tuple[F64, F64]:
    """The C library's cos and sin of angles of at least 0."""
    turned = np.zeros(angle.shape, np.complex128)
    turned.imag = angle
    np.exp(turned, out=turned)
    return turned.real, turned.imag


def exp(x: F64) -> F64:
    """The C library's exp."""
    with np.errstate(over="ignore"):
        result: F64 = np.exp(x.astype(np.complex128)).real.copy()
    for i in np.flatnonzero(x > _EXP_SPLITS).tolist():
        try:
            result[i] = math.exp(x[i])
        except OverflowError:
            result[i] = math.inf
    return result


def log1p(x: F64) -> F64:
    """The C library's log1p of x > -1."""
    return _each(math.log1p, x)


def tan(x: F64) -> F64:
    """The C library's tan."""
    return _each(math.tan, x)


def _each(function: Callable[[float], float], x: F64) -> F64:
    """A function of Python's numbers, of which few are alive at a time: one takes 32 bytes."""
    if x.size <= _FEW:
        return np.fromiter(map(function, x.tolist()), np.float64, x.size)
    result = np.empty(x.size, np.float64)
    for start in range(0, x.size, _FEW):
        part = x[start : start + _FEW].tolist()
        result[start : start + _FEW] = np.fromiter(map(function, part), np.float64, len(part))
    return result


_FEW: Final = 1 << 12


def _two_sum(a: F64, b: Any) -> tuple[F64, F64]:
    """a + b rounded, and what the rounding lost (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _two_product(a: F64, b: float) -> tuple[F64, F64]:
    """a * b rounded, and what the rounding lost (Dekker)."""
    product = a * b
    scaled = a * _SPLIT
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    b_high = b * _SPLIT - (b * _SPLIT - b)
    b_low = b - b_high
    return product, a_low * b_low - (
        ((product - a_high * b_high) - a_low * b_high) - a_high * b_low
    )


def _to_odd(total: F64, lost: F64) -> F64:
    """total + lost, rounded to the neighbour with an odd last bit unless exact."""
    bits = total.view(np.int64)
    away = bare.where((lost > 0) == (total > 0), 1, -1)
    bits += bare.where((lost != 0) & (bits & 1 == 0), away, 0)
    return total


def _fma_one(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    from fractions import Fraction  # with `decimal`, for one element in millions

    try:
        return float(Fraction(a) * Fraction(b) + Fraction(c))
    except OverflowError:
        return math.copysign(math.inf, a * b + c)
