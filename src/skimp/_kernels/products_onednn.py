"""float32 products of matrices by oneDNN (`onednn`), where it is installed.

It multiplies narrow matrices in half of OpenBLAS's time and others in nine tenths, and its threads
are OpenMP's: they stay awake for a while after a product, so that the next begins at once on all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping, signals, teams

Array = np.ndarray[Any, Any]

# Multiplications from which several threads pay: what comes next on one finds a part of the result
# in another core's cache.
_SHARED: Final = 1 << 22
# oneDNN may cut long sums where the number of threads says. Bits must not depend on that, so what
# threads share is added up in pieces that it leaves whole, however few results there are.
_DEEP: Final = 256
# Of more rows it lays out both factors, in 4 MiB for 3000 columns, which the C library then
# keeps for each thread; up to so many it reads them where they lie, in the same time.
_ROWS: Final = 512
_TALL: Final = 1024  # rows from which a product is cut so
_KINDS: Final = (b"N", b"T")  # how a factor lies: in rows, or turned
_ITEM: Final = 4  # bytes
Lies = tuple[bool, int]  # whether a matrix is turned, and how far its runs are apart, in elements


def multiply(a: Array, b: Array, out: Array, threads: int, add: bool = False) -> bool:
    """out = a @ b, and what `out` held if `add`; whether oneDNN makes it, which follows from
    types, shapes, strides and the library alone.

    Matrices (m, k), (k, n), (m, n); `out` shares no memory with the others.
    """
    lie = _lie(a, b, out)
    functions = _functions()
    if lie is None or functions is None or not signals.here.apart:  # which makes it so
        return False
    (m, k), n = a.shape, b.shape[1]
    one, other, apart = lie
    shared = m * k * n >= _SHARED
    team = teams.size(threads) if shared else 1
    began = teams.begin() if team > 1 else None
    (signals.gather if team > 1 else functions[0])(team)
    piece = _DEEP if shared else k
    rows = -(-m // -(-m // _ROWS)) if shared and m >= _TALL else m  # of even parts
    at_a, at_b, at_out = shaping.address(a), shaping.address(b), shaping.address(out)
    for row in range(0, m, rows):
        high, from_a = min(rows, m - row), at_a + row * a.strides[0]
        to = at_out + row * apart * _ITEM
        for start in range(0, k, piece):
            functions[1](
                _KINDS[one[0]], _KINDS[other[0]], high, n, min(piece, k - start),
                1, from_a + start * a.strides[1], one[1],
                at_b + start * b.strides[0], other[1],
                add or start > 0, to, apart,
            )  # fmt: skip
    if began is not None:
        teams.end(began)
    return True


def repeated(a: Array, b: Array, out: Array) -> Callable[[Array], None] | None:
    """What makes `multiply` of small matrices again, of others that lie as `a` does; None where
    that does not make it, or on several threads. `b` and `out` stay where they are.
    """
    lie = _lie(a, b, out)
    functions = _functions()
    if lie is None or functions is None or not signals.here.apart:
        return None
    (m, k), n = a.shape, b.shape[1]
    if m * k * n >= _SHARED:
        return None
    one, other, apart = lie
    kinds = _KINDS[one[0]], _KINDS[other[0]]
    use_threads, product = functions

    def run(a: Array) -> None:
        use_threads(1)
        product(
            *kinds, m, n, k, 1, shaping.address(a), one[1], at_b, other[1], False, at_out, apart
        )

    at_b, at_out = shaping.address(b), shaping.address(out)
    return run


def _lie(a: Array, b: Array, out: Array) -> tuple[Lies, Lies, int] | None:
    """How two factors and their product lie, if they are matrices that this takes."""
    (m, k), n, (down, right) = a.shape, b.shape[1], out.strides
    if not (a.dtype.char == "f" == b.dtype.char and m > 1 < n and k > 1):
        return None
    one, other = _lies(a), _lies(b)
    if one is None or other is None or right != _ITEM or down < n * _ITEM or down % _ITEM:
        return None
    return one, other, down // _ITEM


def _lies(x: Array) -> Lies | None:
    """How a matrix of several rows and columns lies, if one of both is runs of memory."""
    (rows, columns), (down, right) = x.shape, x.strides
    if right == _ITEM and down >= columns * _ITEM and not down % _ITEM:
        return False, down // _ITEM
    if down == _ITEM and right >= rows * _ITEM and not right % _ITEM:
        return True, right // _ITEM
    return None


@cache
def _functions() -> tuple[Callable[[int], None], Callable[..., int]] | None:
    """What sets the number of threads of calls by this thread, and the product."""
    found = onednn.library()
    if found is None:
        return None
    size, matrix = ctypes.c_int64, (ctypes.c_void_p, ctypes.c_int64)
    real, kind = ctypes.c_float, ctypes.c_char
    product = found.dnnl_sgemm
    product.argtypes = (kind, kind, size, size, size, real, *matrix, *matrix, real, *matrix)
    return onednn.use_threads, product
