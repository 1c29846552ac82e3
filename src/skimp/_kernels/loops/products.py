"""Products of matrices by BLAS, one after the other, that a team shares."""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:  # else they are C's (`products.pxd`)

    def _matrix(x: Any, i: Any, h: Any, r: Any) -> Any:
        """Where a row of one of the matrices is, and so what follows; to be written, too."""
        return x[i, h, r:]

    def _pitch(x: Any) -> Any:
        return x.strides[2] // x.itemsize

    def _row(x: Any, t: Any) -> Any:
        return x[t]

    _target = _matrix

    def _cleared(x: Any, pitch: Any, rows: Any, columns: Any) -> None:
        x[:rows] = 0

    def _multiplied(
        gemm: Any, wide: Any, turned_a: Any, turned_b: Any, rows: Any, columns: Any, depth: Any,
        by: Any, a: Any, pitch_a: Any, b: Any, pitch_b: Any, adds: Any, out: Any, pitch: Any,
    ) -> None:  # fmt: skip
        """out = a @ b * by, of matrices or their transposes, and what was there if it `adds`."""
        one = _lying(a, depth if turned_a else rows, rows if turned_a else depth)
        other = _lying(b, columns if turned_b else depth, depth if turned_b else columns)
        found = (one.T if turned_a else one) @ (other.T if turned_b else other)
        into = _lying(out, rows, columns)
        into[...] = found * by + into if adds else found * by

    def _lying(x: Any, rows: Any, columns: Any) -> Any:
        return x[:rows] if x.ndim > 1 else x[: rows * columns].reshape(rows, columns)
