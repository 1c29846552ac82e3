"""LAPACK's routines for square matrices, by the ufuncs behind NumPy's functions, which take as long
in Python as a small matrix does in LAPACK. Single precision is computed in double and rounded, as
there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.linalg import _umath_linalg as _routines

from skimp._kernels import bare, shaping
from skimp._kernels.blas import one_thread
from skimp._kernels.openblas import library
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
    if _is_finite(kept) and bare.count_nonzero(diagonal) == diagonal.size:
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


def _is_finite(a: Array) -> bool:
    """Whether no element is infinite or NaN; no, too, where the sum of all is."""
    return bool(np.isfinite(quietly(np.add.reduce, a, None)))


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


def factors(a: Array) -> tuple[Array, Array] | None:
    """L below and U on the diagonal of one array, each matrix column-major, and each step's pivot
    row, from 1, in a's own precision; None where LAPACK has no name, or may lose what isn't finite.
    """
    found = _named("getrf", a.dtype.char, 6)
    if found is None or not (a.size and _is_finite(a)):
        return None
    getrf, integer = found
    *lead, m, n = a.shape
    both = np.array(a.swapaxes(-1, -2), order="C")
    pivots = np.empty((*lead, min(m, n)), integer)
    rows, columns, info = _numbers(integer, m, n, 0)
    at, to = shaping.addresses(both, pivots)
    step, rise = m * n * a.itemsize, pivots.shape[-1] * pivots.itemsize
    with one_thread():
        for i in range(both.size // (m * n)):
            getrf(rows, columns, at + i * step, rows, to + i * rise, info)
    return both.swapaxes(-1, -2), pivots.astype(np.int32)


def by_factors(both: Array, pivots: Array, b: Array, turned: bool) -> Array | None:
    """The x of a x = b, or with `turned` of a's adjoint, from what `factors` gives, column-major;
    None where `factors` has none.
    """
    found = _named("getrs", both.dtype.char, 9)
    if found is None or not (b.size and _is_finite(both)):
        return None
    getrs, integer = found
    n, count = b.shape[-2:]
    lead = np.broadcast_shapes(both.shape[:-2], b.shape[:-2])
    x = np.array(shaping.broadcast(b, (*lead, n, count)).swapaxes(-1, -2), order="C")
    a = np.ascontiguousarray(shaping.broadcast(both, (*lead, n, n)).swapaxes(-1, -2))
    places = np.ascontiguousarray(shaping.broadcast(pivots, (*lead, n)), integer)
    size, columns, info = _numbers(integer, n, count, 0)
    at, to, where = shaping.addresses(a, x, places)
    step, rise, turn = n * n * a.itemsize, n * count * a.itemsize, n * places.itemsize
    way = b"C" if turned else b"N"
    with one_thread():
        for i in range(x.size // (n * count)):
            getrs(way, size, columns, at + i * step, size, where + i * turn, to + i * rise, size,
                  info)  # fmt: skip
    return x.swapaxes(-1, -2)


def _numbers(integer: Any, *values: int) -> list[Any]:
    """Integers as Fortran takes them."""
    kind = ctypes.c_int64 if integer is np.int64 else ctypes.c_int32
    return [ctypes.byref(kind(value)) for value in values]


_LETTERS: Final = {"f": "s", "d": "d", "F": "c", "D": "z"}


@cache
def _named(name: str, kind: str, takes: int) -> tuple[Callable[..., None], Any] | None:
    """A routine that NumPy has no function of, by its name in NumPy's OpenBLAS, and the type of its
    integers; None with any other BLAS, and for types that LAPACK has not.
    """
    if kind not in _LETTERS:
        return None
    for suffix, integer in (("_64_", np.int64), ("_", np.int32)):
        found = getattr(library(), f"scipy_{_LETTERS[kind]}{name}{suffix}", None)
        if found is not None:
            found.argtypes, found.restype = [ctypes.c_void_p] * takes, None
            return found, integer
    return None


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
