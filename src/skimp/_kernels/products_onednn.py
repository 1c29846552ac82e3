"""float32 products of matrices by oneDNN (`onednn`), where it is installed.

It multiplies narrow matrices in half of OpenBLAS's time and others in nine tenths (small ones are
left to OpenBLAS), and its threads are OpenMP's: they stay awake for a while after a product, so
that the next begins at once on all.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from ctypes import addressof
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled, onednn, shaping, signals, teams

Array = np.ndarray[Any, Any]

# Multiplications from which several threads pay: what comes next on one finds a part of the result
# in another core's cache.
_SHARED: Final = 1 << 22
EACH: Final = 15e-12  # seconds of one, by which it is known whether who sleeps is woken
# oneDNN may cut long sums where the number of threads says. Bits must not depend on that, so what
# threads share is added up in pieces that it leaves whole, however few results there are.
_DEEP: Final = 256
# Of more rows it lays out both factors, in 4 MiB for 3000 columns, which the C library then
# keeps for each thread; up to so many it reads them where they lie, for a tenth of the time more.
_ROWS: Final = 512
_TALL: Final = 1024  # rows from which a product is cut so,
# but where that memory, 1 MiB for so many columns, is little beside so many elements of all three.
_NARROW: Final = 1024
_MUCH: Final = 1 << 22
# Multiplications up to which OpenBLAS has kernels for small matrices, on x86-64: they take three
# quarters of oneDNN's time, but for few rows times a turned matrix, which they read one by one.
SMALL: Final = 100**3
THIN: Final = 64
_ITEM: Final = 4  # bytes
_at: Final[Any] = ctypes.c_char.from_buffer
Ints = tuple[int, ...]
# Rows and depth, how far it begins in the factors and the result in bytes, whether it is added.
Part = tuple[int, int, int, int, int, bool]
# Each factor's kind, how far the three's runs are apart, how long one thread takes where several
# share the product (else 0), the parts that it is made in, whether there are no gaps between runs.
Cut = tuple[bytes, bytes, int, int, int, float, tuple[Part, ...], bool]
# The addresses of the factors and the result, how many threads may share it, whether it is added.
Make = Callable[[int, int, int, int, bool], None]
# The same, of threads that are told: 0 if they were before.
Run = Callable[[int, int, int, int, bool], None]
Prepared = tuple[Make, bool, bool, bool]


def multiply(a: Array, b: Array, out: Array, threads: int, add: bool = False) -> bool:
    """out = a @ b, and what `out` held if `add`; whether oneDNN makes it, which follows from
    types, shapes, strides and the library alone.

    Matrices (m, k), (k, n), (m, n); `out` shares no memory with the others.
    """
    found = prepared(
        a.dtype.char, b.dtype.char, a.shape, b.shape[1], a.strides, b.strides, out.strides
    )
    if found is None:
        return False
    made, turned_a, turned_b, dense = found
    if dense and not shaping.IN_C and a.flags.writeable and b.flags.writeable:
        # `shaping.addresses`, written out
        at_a = addressof(_at(a.T if turned_a else a))
        at_b = addressof(_at(b.T if turned_b else b))
        at_out = addressof(_at(out))
    else:
        at_a, at_b, at_out = shaping.addresses(a, b, out)
    made(at_a, at_b, at_out, threads, add)
    return True


@lru_cache(1024)
def prepared(
    kind_a: str, kind_b: str, shape: Ints, n: int, a: Ints, b: Ints, out: Ints
) -> Prepared | None:
    """What makes `multiply` of matrices of these types and strides, by their addresses, and whether
    each factor is turned and there are no gaps between runs; None where that does not make it.
    """
    cut = _cut(kind_a, kind_b, shape, n, a, b, out)
    run = None if cut is None else _run_of(cut, n)
    if cut is None or run is None:
        return None
    turned_a, turned_b, *_, shared, _, dense = cut

    def make(at_a: int, at_b: int, at_out: int, threads: int, add: bool) -> None:
        apart = signals.here.apart  # asked by each thread before its first: which makes it so
        began = teams.gathered(shared) if apart and shared and threads > 1 else None
        if began is None:
            run(at_a, at_b, at_out, 1, add)
            return
        if teams.told.size != threads:
            signals.gather(threads)
            threads = 0  # they are told
        run(at_a, at_b, at_out, threads, add)
        teams.end(began)

    return make, turned_a == b"T", turned_b == b"T", dense


def repeated(a: Array, b: Array, out: Array) -> Callable[[Array], None] | None:
    """What makes `multiply` of small matrices again, of others that lie as `a` does; None where
    that does not make it, or on several threads. `b` and `out` stay where they are.
    """
    cut = _cut(a.dtype.char, b.dtype.char, a.shape, b.shape[1], a.strides, b.strides, out.strides)
    run = None if cut is None else _run_of(cut, b.shape[1])
    if cut is None or run is None or cut[-3] or not signals.here.apart:
        return None
    at_b, at_out = shaping.addresses(b, out)
    return lambda a: run(shaping.address(a), at_b, at_out, 1, False)


def _run_of(cut: Cut, n: int) -> Run | None:
    """What makes products of n columns that are cut so, of addresses."""
    functions = _functions()
    if functions is None:
        return None
    put, product = functions
    turned_a, turned_b, pitch_a, pitch_b, pitch, _, parts, _ = cut
    if (loops := compiled.loops()) is not None:
        words = [_place(product), 0 if put is None else _place(put), ord(turned_a), ord(turned_b)]
        for part in ((n, pitch_a, pitch_b, pitch), *parts):
            words += part
        return partial(loops.multiplied, array("q", words).tobytes())

    def run(at_a: int, at_b: int, at_out: int, threads: int, add: bool) -> None:
        if put is not None and threads:
            put(threads)
        for high, deep, from_a, from_b, to, later in parts:
            product(
                turned_a, turned_b, high, n, deep, 1, at_a + from_a, pitch_a,
                at_b + from_b, pitch_b, add or later, at_out + to, pitch,
            )  # fmt: skip

    return run


def _place(function: Any) -> int:
    where = ctypes.cast(function, ctypes.c_void_p).value
    assert where is not None
    return where


@lru_cache(1024)
def _cut(kind_a: str, kind_b: str, shape: Ints, n: int, a: Ints, b: Ints, out: Ints) -> Cut | None:
    """How two factors of these types and strides and their product lie, if they are matrices that
    this takes.
    """
    (m, k), (down, right) = shape, out
    if not (kind_a == "f" == kind_b and m > 1 < n and k > 1):
        return None
    one, other = _lies(m, k, a), _lies(k, n, b)
    if one is None or other is None or right != _ITEM or down < n * _ITEM or down % _ITEM:
        return None
    thin = m < THIN and one[0] == b"N" and other[0] == b"T"
    if m * k * n <= SMALL and not thin:
        return None
    shared = m * k * n * EACH if m * k * n >= _SHARED else 0.0
    piece = _DEEP if shared else k
    little = n <= _NARROW and m * k + k * n + m * n >= _MUCH
    rows = -(-m // -(-m // _ROWS)) if shared and m >= _TALL and not little else m  # of even parts
    parts = [
        (
            min(rows, m - row), min(piece, k - start), row * a[0] + start * a[1], start * b[0],
            row * down, start > 0,
        )
        for row in range(0, m, rows)
        for start in range(0, k, piece)
    ]  # fmt: skip
    dense = m * k == one[1] * (m if one[0] == b"N" else k)
    dense = dense and k * n == other[1] * (k if other[0] == b"N" else n) and down == n * _ITEM
    return one[0], other[0], one[1], other[1], down // _ITEM, shared, tuple(parts), dense


def _lies(rows: int, columns: int, strides: Ints) -> tuple[bytes, int] | None:
    """How a matrix of several rows and columns lies, in rows or turned, and how far its runs are
    apart, in elements; if one of both is runs of memory.
    """
    down, right = strides
    if right == _ITEM and down >= columns * _ITEM and not down % _ITEM:
        return b"N", down // _ITEM
    if down == _ITEM and right >= rows * _ITEM and not right % _ITEM:
        return b"T", right // _ITEM
    return None


@cache
def _functions() -> tuple[Any, Any] | None:
    """What sets the number of threads of calls by this thread, or None, and the product."""
    found = onednn.library()
    if found is None:
        return None
    size, matrix = ctypes.c_int64, (ctypes.c_void_p, ctypes.c_int64)
    real, kind = ctypes.c_float, ctypes.c_char
    product = found.dnnl_sgemm
    product.argtypes = (kind, kind, size, size, size, real, *matrix, *matrix, real, *matrix)
    return onednn.put_threads(), product
