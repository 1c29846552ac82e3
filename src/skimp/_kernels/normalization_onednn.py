"""The gradients of float32 layer normalization by oneDNN (`onednn`), where it is installed.

One pass over rows that stay in the cache instead of NumPy's thirteen. Rows are cut into runs of
powers of two, so that few primitives serve any number of them; where the cuts are follows from the
number of rows alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.onednn_runs import Runs
from skimp._kernels.scratch import Scratch

Array = np.ndarray[Any, Any]
Affine = tuple[Array, Array]  # the gradients of weight and bias

_TYPE: Final = np.dtype(np.float32)
_LEAST: Final = 1 << 13  # elements below which NumPy has done before a primitive is called


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
    with Scratch((2, n), _TYPE) as part:
        matrices = [shaping.address(a) for a in (x, g, made)]
        columns = [shaping.address(a) for a in (mean, variance)]
        rest: list[int] = []
        if scaled:
            weights, above = shaping.address(scale), shaping.address(part)
            rest = [weights, above, above + n * _TYPE.itemsize, weights]
        done = 0
        while done < rows:
            count = 1 << ((rows - done).bit_length() - 1)
            _runs(count, n, scaled).make(
                [at + done * n * _TYPE.itemsize for at in matrices]
                + [at + done * _TYPE.itemsize for at in columns]
                + rest
            )
            if affine:
                np.add(sums, part, out=sums)
            done += count
    if made is not out:
        out[...] = made
    return (sums[0], sums[1]) if affine else None


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
