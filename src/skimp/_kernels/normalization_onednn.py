"""float32 layer normalization and its gradients by oneDNN (`onednn`), where it is installed.

Gradients are one pass over rows that stay in the cache instead of NumPy's thirteen. Rows are cut
into runs of powers of two, so that few primitives serve any number of them; where the cuts are
follows from the number of rows alone. Forward, four of NumPy's passes are two with the same bits:
each operation is rounded by itself. So whoever asks has NumPy do it where oneDNN does not.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, onednn, shaping
from skimp._kernels.onednn_runs import Runs, together
from skimp._kernels.scratch import give, take

Array = np.ndarray[Any, Any]
Affine = tuple[Array, Array]  # the gradients of weight and bias

_TYPE: Final = np.dtype(np.float32)
_BYTES: Final = np.dtype(np.uint8)
_LINE: Final = 64  # bytes
_LEAST: Final = 1 << 13  # elements below which NumPy has done before a primitive is called
_WORTH: Final = 1 << 17  # the same of a call for the shape of a tensor, which a team shares
SEVERAL: Final = 1 << 16  # and of one in place of two or three


def takes(dtype: np.dtype[Any], size: int) -> bool:
    """Whether `backward` takes a tensor of so many elements."""
    return dtype == _TYPE and size >= _LEAST and onednn.library() is not None


def backward(
    g: Array, x: Array, mean: Array, rstd: Array, w: Array | None, affine: bool, out: Array
) -> Affine | None:
    """out = the gradient of x, from that of its normalized rows; those of weight and bias, added up
    over the rows, if `affine`.

    Matrices (rows, n); mean and rstd (rows, 1); w (n,).
    """
    rows, n = x.shape
    scaled = affine or w is not None
    g, x, mean = np.ascontiguousarray(g), np.ascontiguousarray(x), np.ascontiguousarray(mean)
    scale = np.ones(n, _TYPE) if w is None else np.ascontiguousarray(w)
    variance = np.reciprocal(np.multiply(rstd, rstd))
    sums = np.zeros((2, n), _TYPE)
    made = out if out.flags.c_contiguous else np.empty((rows, n), _TYPE)
    todo, most = _cut(rows, n, scaled)
    room = take(most + sums.nbytes, _BYTES)
    part = room[most:].view(_TYPE).reshape(2, n)
    at_x, at_g, at_made, at_mean, at_variance, at_room, weights = shaping.addresses(
        x, g, made, mean, variance, room, scale
    )
    rest: tuple[int, ...] = ()
    if scaled:
        above = at_room + most
        rest = weights, above, above + n * _TYPE.itemsize, weights
    for runs, down, beside in todo:
        matrices = at_x + down, at_g + down, at_made + down
        runs.make((*matrices, at_mean + beside, at_variance + beside, *rest), room=at_room)
        if affine:
            np.add(sums, part, out=sums)
    give(room)
    if made is not out:
        out[...] = made
    return (sums[0], sums[1]) if affine else None


def centred(x: Array, mean: Array, out: Array) -> bool:
    """out = x - mean, for matrices (rows, n) and (rows, 1); whether oneDNN makes it."""
    return _by_rows(onednn.SUBTRACT, (x, mean, out))


def scaled(x: Array, rstd: Array, w: Array | None, b: Array | None, out: Array) -> bool:
    """out = x * rstd * w, plus b, of (rows, 1) and rows (n,); whether oneDNN makes it."""
    return _by_rows(onednn.MULTIPLY, (x, rstd, out), w, b)


def _by_rows(kind: int, three: tuple[Array, Array, Array], *rows: Array | None) -> bool:
    x, given = three[0], [row for row in rows if row is not None]
    least = SEVERAL if given else _WORTH
    if x.size < least or x.dtype != _TYPE or onednn.library() is None or not _exact():
        return False
    arrays = [*three, *given]
    for array in arrays:
        if array.dtype != _TYPE or not array.flags.c_contiguous:
            return False
    made = _lines(kind, *x.shape, tuple([row is not None for row in rows]))
    if made is None:
        return False
    made.make(shaping.addresses(*arrays), together(x.size >= _WORTH))
    return True


@cache
def _exact() -> bool:
    """Whether this processor's code rounds each operation by itself, as NumPy does."""
    x = np.sin(np.arange(1 << 14, dtype=_TYPE)).reshape(64, 256)
    mean, w, b = np.cos(x[:, :1]), x[0] * 3, x[1] + 1
    less, line = _lines(onednn.SUBTRACT, 64, 256, ()), _lines(onednn.MULTIPLY, 64, 256, (True,) * 2)
    if less is None or line is None:
        return False
    out = bare.empty_like(x)
    less.make(shaping.addresses(x, mean, out))
    line.make(shaping.addresses(out, mean, out, w, b))
    return np.array_equal(out, (x - mean) * mean * w + b)


@lru_cache(256)
def _lines(kind: int, rows: int, n: int, given: tuple[bool, ...]) -> Runs | None:
    """A matrix and a column, and then what is `given` of a row that multiplies and one that is
    added; None where oneDNN has only code that goes one by one."""
    matrix, column = onednn.layout((rows, n), (n, 1)), onednn.layout((rows, 1), (1, 1))
    row = onednn.layout((1, n), (n, 1))
    kinds = [k for k, there in zip((onednn.MULTIPLY, onednn.ADD), given, strict=False) if there]
    try:
        with onednn.team(1):
            primitive = onednn.binary(kind, matrix, column, [(k, row) for k in kinds])
    except onednn.Unsupported:
        return None
    if onednn.REFERENCE in primitive.name:
        return None
    layouts = {onednn.FROM: matrix, onednn.BESIDE: column, onednn.TO: matrix}
    return Runs(primitive, layouts | dict.fromkeys(onednn.ADDED[: len(kinds)], row))


@lru_cache(256)
def _cut(rows: int, n: int, scaled: bool) -> tuple[list[tuple[Runs, int, int]], int]:
    """What makes each part of so many rows, where it begins in matrices and in columns, in bytes;
    and the most scratch memory that one takes, in whole lines of the cache.
    """
    counts = [1 << bit for bit in reversed(range(rows.bit_length())) if rows >> bit & 1]
    ends = accumulate(counts)
    todo = [
        (
            _runs(count, n, scaled),
            (end - count) * n * _TYPE.itemsize,
            (end - count) * _TYPE.itemsize,
        )
        for count, end in zip(counts, ends, strict=True)
    ]
    return todo, -(-max([runs.scratch for runs, _, _ in todo], default=0) // _LINE) * _LINE


@lru_cache(256)
def _runs(rows: int, n: int, scaled: bool) -> Runs:
    matrix, column = onednn.layout((rows, n), (n, 1)), onednn.layout((rows,), (1,))
    with onednn.team(1):  # whose number the bits follow: it must not be what a product here had
        primitive = onednn.normalization(matrix, column, scaled)
    layouts = dict.fromkeys(onednn.NORMALIZED, matrix) | dict.fromkeys(onednn.STATISTICS, column)
    if scaled:
        row = onednn.layout((n,), (1,))
        layouts[onednn.SCALE] = row
        layouts |= dict.fromkeys(onednn.AFFINE, row)
        layouts[onednn.SHIFT] = row  # though it isn't needed
    return Runs(primitive, layouts)
