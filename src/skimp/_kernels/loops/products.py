"""Products of matrices by BLAS, one after the other, that a team shares."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

if not cython.compiled:  # else they are C's (`products.pxd`)

    def _matrix(x: Any, i: Any, h: Any, r: Any) -> Any:
        """Where a row of one of the matrices is, and so what follows; to be written, too."""
        return x[i, h, r:]

    def _pitch(x: Any) -> Any:
        return x.strides[2] // x.itemsize

    def _same(x: Any, y: Any) -> Any:
        """Whether both begin at the same place."""
        where = [a.__array_interface__["data"][0] for a in (x, y)]
        return where[0] == where[1]

    def _row(x: Any, t: Any) -> Any:
        return x[t]

    _target = _matrix

    def _turned(x: Any, pitch: Any, rows: Any, columns: Any, out: Any) -> None:
        """out = the transpose of so many rows and columns, without gaps."""
        out[: rows * columns].reshape(columns, rows)[...] = x[:rows].T

    def _cleared(x: Any, pitch: Any, rows: Any, columns: Any) -> None:
        x[:rows] = 0

    def _multiplied(
        gemm: Any, wide: Any, turned_a: Any, turned_b: Any, rows: Any, columns: Any, depth: Any,
        by: Any, a: Any, pitch_a: Any, b: Any, pitch_b: Any, adds: Any, out: Any, pitch: Any,
    ) -> None:  # fmt: skip
        """out = a @ b * by, of matrices or their transposes, and what was there if it `adds`."""
        one = _lying(a, depth if turned_a else rows, rows if turned_a else depth, pitch_a)
        other = _lying(b, columns if turned_b else depth, depth if turned_b else columns, pitch_b)
        found = (one.T if turned_a else one) @ (other.T if turned_b else other)
        into = _lying(out, rows, columns, pitch)
        into[...] = found * by + into if adds else found * by

    def _lying(x: Any, rows: Any, columns: Any, pitch: Any) -> Any:
        if x.ndim > 1:
            return x[:rows]
        return x[: rows * pitch].reshape(rows, pitch)[:, :columns]


def products(
    gemm: Any, wide: Any, turned_a: Any, turned_b: Any, a: Any, b: Any, out: Any, threads: Any
) -> Any:  # fmt: skip
    """out = a @ b of each matrix, by so many threads; a or b holds the transposes where it is
    turned. Whether it is done, as NumPy would do it: where both begin at the same place, they may
    be a matrix and its transpose, which is no plain product there.

    `gemm`: where BLAS's product is, and whether its integers are of 64 bits.
    """
    if _same(a, b):
        return False
    n = out.shape[0] * out.shape[1]
    if threads < 2:
        with cython.nogil:
            _products(gemm, wide, turned_a, turned_b, a, b, out, 0, n)
        return True
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _products(
            gemm, wide, turned_a, turned_b, a, b, out, t * n // threads, (t + 1) * n // threads
        )
    return True


def _products(
    gemm: Any, wide: Any, turned_a: Any, turned_b: Any, a: Any, b: Any, out: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    one = 1.0
    rows, columns, depth = out.shape[2], out.shape[3], a.shape[2] if turned_a else a.shape[3]
    for m in range(first, last):
        i, h = m // out.shape[1], m % out.shape[1]
        _multiplied(
            gemm, wide, turned_a, turned_b, rows, columns, depth, one, _matrix(a, i, h, 0),
            _pitch(a), _matrix(b, i, h, 0), _pitch(b), 0, _target(out, i, h, 0), _pitch(out),
        )  # fmt: skip
