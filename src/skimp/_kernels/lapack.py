"""LAPACK's routines for square matrices, by the ufuncs behind NumPy's functions, which take as long
in Python as a small matrix does in LAPACK. Single precision is computed in double and rounded, as
there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.linalg import _umath_linalg as _routines

from skimp._kernels import bare, shaping
from skimp._kernels.threads import quietly

Array = np.ndarray[Any, Any]


def inverse(a: Array) -> Array:
    """As np.linalg.inv, which raises LinAlgError for a singular matrix; all NaN where any is."""
    found = made("inv", a)
    if failed(found, a):
        return _spoilt(np.linalg.inv(a), a, 2)
    return found.astype(a.dtype, copy=False)  # type: ignore[no-any-return]


def solution(a: Array, b: Array) -> Array:
    """As np.linalg.solve; all NaN where a matrix has any."""
    found = made("solve1" if b.ndim == 1 else "solve", a, b)
    if failed(found, a):
        return _spoilt(np.linalg.solve(a, b), a, min(b.ndim, 2))
    return found.astype(a.dtype, copy=False)  # type: ignore[no-any-return]


def substituted(a: Array, b: Array, upper: bool, unit: bool, left: bool = True) -> Array:
    """Solve a x = b, or x a = b, with a triangle of `a`, row by row where it is singular, for
    infinities as LAPACK has, or not finite, which elimination loses by exchanging rows.
    """
    if not left:
        found = substituted(a.swapaxes(-1, -2), b.swapaxes(-1, -2), not upper, unit)
        return found.swapaxes(-1, -2)
    kept = triangle(a, upper, unit)
    diagonal = kept.diagonal(0, -2, -1)
    finite = np.isfinite(quietly(np.add.reduce, kept, None))
    if finite and bare.count_nonzero(diagonal) == diagonal.size:
        return made("solve", kept, b).astype(a.dtype, copy=False)  # type: ignore[no-any-return]
    n = a.shape[-1]
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])
    x = np.array(shaping.broadcast(b, shape))
    for i in reversed(range(n)) if upper else range(n):
        done = slice(i + 1, n) if upper else slice(0, i)
        left = np.matmul(kept[..., i : i + 1, done], x[..., done, :])
        x[..., i : i + 1, :] -= left
        x[..., i, :] /= kept[..., i, i, None]
    return x


def _places(rows: int, columns: int, upper: bool) -> Array:
    """Which elements are in a triangle."""
    lower = np.tri(rows, columns, -1 if upper else 0, dtype=bool)
    return ~lower if upper else lower


_kept_places = lru_cache(maxsize=64)(_places)
_KEPT: Final = 64  # rows and columns up to which such patterns stay: nobody counts their bytes


def _pattern(a: Array, upper: bool) -> Array:
    *_, rows, columns = a.shape
    places = _kept_places if max(rows, columns) <= _KEPT else _places
    return places(rows, columns, upper)


def adjoint(a: Array) -> Array:
    """Matrices transposed, and conjugated if they are complex: else a view."""
    turned = a.swapaxes(-1, -2)
    return np.conj(turned) if a.dtype.kind == "c" else turned


def mirrored(a: Array) -> Array:
    """Lower triangles, with their adjoints above them."""
    made = bare.where(_pattern(a, False), a, adjoint(a))
    made += a.dtype.type(0)  # without negative zeros
    return made


def triangle(a: Array, upper: bool, unit: bool = False) -> Array:
    """A triangle of the matrices, with zeros elsewhere; `unit`: ones on its diagonal."""
    kept = bare.where(_pattern(a, upper), a, a.dtype.type(0))
    if unit:
        *lead, n, m = kept.shape
        kept.reshape(*lead, n * m)[..., :: m + 1] = 1
    return kept


def lower(a: Array) -> Array:
    """As np.linalg.cholesky."""
    found = made("cholesky_lo", a)
    return np.linalg.cholesky(a) if failed(found, a) else found.astype(a.dtype, copy=False)


def determinant(a: Array) -> Any:
    """As np.linalg.det."""
    return made("det", a).astype(a.dtype, copy=False)


def log_determinant(a: Array) -> tuple[Any, Any]:
    """As np.linalg.slogdet."""
    sign, size = quietly(_logarithm(a.dtype.kind == "c"), a)
    return sign.astype(a.dtype, copy=False), size.astype(a.real.dtype, copy=False)


def made(name: str, *arrays: Array) -> Any:
    """What a routine gives, in double precision."""
    return quietly(_typed(name, len(arrays), arrays[0].dtype.kind == "c"), *arrays)


@cache
def _typed(name: str, count: int, is_complex: bool) -> Callable[..., Any]:
    one = "D" if is_complex else "d"
    return partial(getattr(_routines, name), signature=f"{one * count}->{one}")


@cache
def _logarithm(is_complex: bool) -> Callable[..., Any]:
    return partial(_routines.slogdet, signature="D->Dd" if is_complex else "d->dd")


def failed(found: Array, a: Array) -> bool:
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
