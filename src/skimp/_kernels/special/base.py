"""What the special functions share: polynomials, pieces, and the way from a formula to a kernel.

A special function is written once, as a formula on float64 arrays (`erfc64(x)` returns a new
array). `kernel` makes of it the form that the engine calls: floating point arrays in, the result
rounded into `out`. The coefficients in these files were fitted for this package: rational (or
polynomial) interpolation at Chebyshev nodes in 50 digits, relative error below 2e-17 where stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from skimp._kernels import bare
from skimp._kernels.pieces import in_pieces

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


_PIECE: Final = 1 << 14  # elements: what a formula makes of them stays in the cache


class Kernel(Protocol):
    """Reads arrays of one shape (or 0-d) and fills `out`, which none of them overlaps."""

    def __call__(self, *arrays: Any, out: Array) -> None: ...


def kernel(formula: Callable[..., F64], short: Callable[..., F64] | None = None) -> Kernel:
    """The kernel of a float64 formula: widens, computes, rounds once, a piece at a time. `short`:
    the formula for what comes from float32 and goes there.
    """

    def fill(*arrays: Any, out: Array) -> None:
        own = [np.atleast_1d(a) for a in arrays]
        narrow = out.dtype == np.float32 and all([a.dtype == np.float32 for a in own])
        used = formula if short is None or not narrow else short
        for some in in_pieces(*own, np.atleast_1d(out), length=_PIECE):
            some[-1][...] = used(*[np.asarray(a, np.float64) for a in some[:-1]])

    fill.__name__ = fill.__qualname__ = formula.__name__.removesuffix("64").rstrip("_")
    fill.__doc__ = formula.__doc__
    return fill


def polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Horner's rule, lowest power first, in x's own type."""
    y: Array = bare.multiply(x, coefficients[-1])
    for c in coefficients[-2:0:-1]:
        y += c
        y *= x
    y += coefficients[0]
    return y


def ratio(x: Array, p: Sequence[float], q: Sequence[float]) -> Array:
    """polynomial(x, p) / polynomial(x, q)."""
    y = polynomial(x, p)
    y /= polynomial(x, q)
    return y


def pieces(x: F64, *parts: tuple[Mask, Callable[[F64], Any]]) -> F64:
    """A function given by parts: each formula sees only the elements of its mask; elsewhere NaN."""
    for mask, formula in parts:
        if mask.all():
            return np.asarray(formula(x), np.float64)
    y = np.full(x.shape, np.nan)
    for mask, formula in parts:
        if mask.any():
            y[mask] = formula(x[mask])
    return y


def sin_pi(x: F64) -> F64:
    """sin(pi x) up to sign, exactly zero at the integers."""
    return np.asarray(np.sin(np.pi * (x - np.rint(x))))
