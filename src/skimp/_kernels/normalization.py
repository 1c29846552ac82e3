"""Rows less their mean, over their deviation, and the gradients, by compiled loops where they are.

Rows of float32 are theirs in whatever way they come, so that a row's bits are up to it alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled, sharing

Array = np.ndarray[Any, Any]

_TYPE: Final = np.dtype(np.float32)
_COST: Final = 0.3e-9  # seconds that a loop takes for each element,
_BACK: Final = 0.5e-9  # and for gradients
_PIECES: Final = 16  # of rows, whose gradients of w and b are added up by themselves
_STEP: Final = 16  # rows of one at least


def loops(dtype: Any) -> Any:
    """The loops, if they are there and this is their type."""
    return compiled.loops() if dtype == _TYPE else None


def forward(
    x: Array, w: Array | None, b: Array | None, eps: float, centre: bool, mean: Array, rstd: Array,
    out: Array,
) -> bool:  # fmt: skip
    """out = rows (a, n) of x, which lies elsewhere, less their mean if they are to `centre`, over
    their deviation, times w, plus b; the columns of means and of one over deviations. Whether it is
    done."""
    if (found := loops(out.dtype)) is None:
        return False
    sharing.call(
        found.normalized, out.size, _COST, _flat(x), w, b, x.shape[1], eps, centre,
        mean.reshape(-1), rstd.reshape(-1), out.reshape(-1),
    )  # fmt: skip
    return True


def again(
    x: Array, rstd: Array, mean: Array | None, w: Array | None, b: Array | None, *, out: Array
) -> None:
    """out = what `forward` has made of x, by one over the deviations, by the means, if rows were to
    centre, and times w, plus b; all are broadcast to `out`, over which x may lie."""
    if _made_again(x, rstd, mean, w, b, out):
        return
    if mean is None:
        np.multiply(x, rstd, out=out)
    else:
        np.subtract(x, mean, out=out)
        np.multiply(out, rstd, out=out)
    if w is not None:
        np.multiply(out, w, out=out)
    if b is not None:
        np.add(out, b, out=out)


def _made_again(
    x: Array, rstd: Array, mean: Array | None, w: Array | None, b: Array | None, out: Array
) -> bool:
    """`again` by the loop, where rows are of its type and lie without gaps; whether it is done."""
    if (found := loops(out.dtype)) is None or not (x.flags.c_contiguous and x.shape == out.shape):
        return False
    n, scales = out.shape[-1], _of_rows(rstd, out)
    middles = scales if mean is None else _of_rows(mean, out)
    row, last = _one_row(w), _one_row(b)
    if scales is None or middles is None or not out.flags.c_contiguous:
        return False
    if [a for a in (row, last) if a is not None and a.shape != (n,)]:
        return False
    sharing.call(
        found.normalized_again, out.size, _COST, x.reshape(-1), row, last, n, mean is not None,
        middles, scales, out.reshape(-1),
    )  # fmt: skip
    return True


def _of_rows(a: Array, out: Array) -> Array | None:
    """The number of each row that is broadcast to `out`; None where that is another array."""
    first = a[..., 0]
    shown = a.shape[-1] == 1 or not a.strides[-1]
    return first.reshape(-1) if shown and first.shape == out.shape[:-1] else None


def _one_row(a: Array | None) -> Array | None:
    """The row that is broadcast, where it is one and without gaps."""
    if a is None or a.ndim == 1:
        return a
    row: Array = a[(0,) * (a.ndim - 1)]
    return row if row.flags.c_contiguous and a.strides[:-1] == (0,) * (a.ndim - 1) else a


def small_forward(
    found: Any, x: Array, w: Array | None, b: Array | None, eps: float, centre: bool,
    shape: tuple[int, ...],
) -> tuple[Array, ...]:  # fmt: skip
    """`forward` of rows without gaps, as new arrays, of `shape` and one for each row."""
    rows, n = x.shape
    out, mean, rstd = np.empty(shape, _TYPE), np.empty(rows, _TYPE), np.empty(rows, _TYPE)
    given = x.ravel(), w, b, n, eps, centre, mean, rstd, out.ravel()  # views of what has no gaps
    if out.size < sharing.FROM:
        found.normalized(*given, 1)
    else:
        sharing.call(found.normalized, out.size, _COST, *given)
    return (out, mean, rstd) if centre else (out, rstd)


def backward(
    g: Array, x: Array, mean: Array, rstd: Array, w: Array | None, affine: bool, out: Array,
    centre: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """out = the gradient of `forward`'s x, where there are `loops`; those of w and b, added up over
    the rows, if `affine`, else None."""
    rows, n = x.shape
    step = max(_STEP, -(-rows // (16 * _PIECES)) * 16)  # by the shape alone, as are bits
    pieces = -(-rows // step) if affine else 0
    room, near = np.empty(pieces * 2 * n), np.empty(pieces * 2 * n, _TYPE)
    sums = np.empty(2 * n if affine else 0, _TYPE)
    sharing.call(
        compiled.loops().normalized_back, out.size, _BACK, _flat(g), _flat(x), mean.reshape(-1),
        rstd.reshape(-1), _ones(n) if w is None else w, n, centre, out.reshape(-1), step, room,
        near, sums,
    )  # fmt: skip
    return (sums[:n], sums[n:]) if affine else (None, None)


def _flat(x: Array) -> Array:
    return np.ascontiguousarray(x, _TYPE).reshape(-1)


@lru_cache(16)
def _ones(n: int) -> Array:
    return np.ones(n, _TYPE)
