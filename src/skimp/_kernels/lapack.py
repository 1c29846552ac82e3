"""LAPACK's routines for square matrices, by the ufuncs behind NumPy's functions, which take as long
in Python as a small matrix does in LAPACK. Single precision is computed in double and rounded, as
there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg as _routines

from skimp._kernels.threads import quietly

Array = np.ndarray[Any, Any]


def inverse(a: Array) -> Array:
    """As np.linalg.inv, which raises LinAlgError for a singular matrix; all NaN where any is."""
    found = _made("inv", a)
    return _spoilt(np.linalg.inv(a), a, 2) if _failed(found, a) else found


def solution(a: Array, b: Array) -> Array:
    """As np.linalg.solve; all NaN where a matrix has any."""
    found = _made("solve1" if b.ndim == 1 else "solve", a, b)
    return _spoilt(np.linalg.solve(a, b), a, min(b.ndim, 2)) if _failed(found, a) else found


def lower(a: Array) -> Array:
    """As np.linalg.cholesky."""
    found = _made("cholesky_lo", a)
    return np.linalg.cholesky(a) if _failed(found, a) else found


def determinant(a: Array) -> Any:
    """As np.linalg.det."""
    return _made("det", a)


def _made(name: str, *arrays: Array) -> Any:
    dtype = arrays[0].dtype
    found = quietly(_typed(name, len(arrays), dtype.kind == "c"), *arrays)
    return found.astype(dtype, copy=False)


@cache
def _typed(name: str, count: int, is_complex: bool) -> Callable[..., Any]:
    one = "D" if is_complex else "d"
    return partial(getattr(_routines, name), signature=f"{one * count}->{one}")


def _failed(found: Array, a: Array) -> bool:
    """Whether one of the matrices may have none: all of it is NaN then, and NumPy's function knows
    whether that is an error."""
    if not found.size:
        return False
    if a.ndim == 2:
        first = found.item(0)
        return bool(first != first)
    return bool(np.isnan(found[..., :1]).any())


def _spoilt(found: Array, a: Array, ndim: int) -> Array:
    """OpenBLAS loses a matrix's NaN on the way to some elements of what depends on it, never to
    the first.
    """
    bad = np.isnan(a).any((-2, -1))
    return np.where(bad.reshape(bad.shape + (1,) * ndim), found.dtype.type(np.nan), found)
