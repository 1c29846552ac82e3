"""BLAS's product that adds to what the result holds, which NumPy never asks it for.

A bias is then written where the product goes, instead of the zeros that BLAS would write there, and
costs nothing. It is asked for by its name in NumPy's own OpenBLAS; with any other BLAS there is no
such way.
"""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from skimp._kernels import products_onednn, shaping
from skimp._kernels.blas import alone, threads_for_products
from skimp._kernels.openblas import INTEGERS, LARGE, TYPES, gemm_of, library
from skimp._kernels.products import has_unit_stride

Array = np.ndarray[Any, Any]

# OpenBLAS's batches crash through its kernels for small matrices (OpenBLAS, pull request 5980).
_SAFE: Final = products_onednn.SMALL
ROWS, AS_IT_IS, TRANSPOSED = 101, 111, 112  # CBLAS: row-major; a factor as it is, or transposed
Lies = tuple[int, int, int]  # an address, how far rows are apart, and matrices, in elements


def adds(a: Array, b: Array, out: Array) -> bool:
    """Whether `add_product` can add a @ b to `out`, and should.

    That follows from shapes, types and strides alone: its sums are rounded in another order than
    those of a product that something is added to.
    """
    return (
        a.ndim == 2 == b.ndim
        and (a.size >= LARGE or b.size >= LARGE)
        and min(out.shape) > 1 < a.shape[1]
        and out.dtype.char in TYPES
        and out.strides[1] == out.itemsize
        and (a.flags.c_contiguous or has_unit_stride(a))
        and (b.flags.c_contiguous or has_unit_stride(b))
        and (out.flags.c_contiguous or has_unit_stride(out))
        and gemm_of(out.dtype.char) is not None
    )


def add_product(a: Array, b: Array, out: Array) -> None:
    """out += a @ b, where `adds` holds; `out` shares no memory with them."""
    if products_onednn.multiply(a, b, out, threads_for_products(), add=True):
        return
    gemm = gemm_of(out.dtype.char)
    assert gemm is not None
    (turned_a, pitch_a), (turned_b, pitch_b), (_, pitch) = _lies(a), _lies(b), _lies(out)
    at_a, at_b, at_out = shaping.addresses(a, b, out)
    with alone(a.size * b.shape[1]):
        gemm(
            ROWS, turned_a, turned_b, *out.shape, a.shape[1], 1, at_a, pitch_a, at_b, pitch_b,
            1, at_out, pitch,
        )  # fmt: skip


def _lies(x: Array) -> tuple[int, int]:
    """Whether a matrix is a row-major one or its transpose, and how far apart its runs are."""
    down, right = x.strides
    turned = right != x.itemsize
    return (TRANSPOSED, right // x.itemsize) if turned else (AS_IT_IS, down // x.itemsize)


def gemms(
    kind: str, turned: tuple[int, int], sizes: tuple[int, int, int], a: Lies, b: Lies, beta: int,
    out: Lies, count: int,
) -> None:  # fmt: skip
    """`count` products, each of `sizes` rows, columns and depth, added to their place if `beta`.

    One call, in which other threads run; those of one after another would wait for each other's
    interpreter between two products. Bits are those of one call each. BLAS must be held to one
    thread (`blas.one_thread`).
    """
    many = _gemms_of(kind) if math.prod(sizes) > _SAFE else None
    if many is not None:
        many(ROWS, *turned, *sizes, 1, *a, *b, beta, *out, count)
        return
    gemm: Any = gemm_of(kind)
    item = np.dtype(kind).itemsize
    for i in range(count):
        one, other, into = [(at + i * step * item, pitch) for at, pitch, step in (a, b, out)]
        gemm(ROWS, *turned, *sizes, 1, *one, *other, beta, *into)


@cache
def _gemms_of(kind: str) -> Callable[..., None] | None:
    """cblas_sgemm_batch_strided or its double; None where BLAS has none (OpenBLAS before 0.3.30),
    and on processors whose kernels for small matrices are not known.

    NumPy's wheels have forgotten to rename it.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    name, real = TYPES[kind]
    renamed = [(f"scipy_cblas_{name}_batch_strided{suffix}", i) for suffix, i in INTEGERS]
    plain = [
        (f"cblas_{name}_batch_strided", integer)
        for suffix, integer in INTEGERS
        if hasattr(library(), f"scipy_cblas_{name}{suffix}")
    ]
    for symbol, integer in (*renamed, *plain):
        found = getattr(library(), symbol, None)
        if found is not None:
            matrix = (ctypes.c_void_p, integer, integer)
            found.argtypes = (
                *[ctypes.c_int] * 3, *[integer] * 3, real, *matrix, *matrix, real, *matrix, integer
            )  # fmt: skip
            found.restype = None
            return found  # type: ignore[no-any-return]
    return None
