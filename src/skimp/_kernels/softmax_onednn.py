"""The gradient of float32 softmax by oneDNN (`onednn`), where it is installed.

One pass over rows that stay in the cache instead of NumPy's four, on a team where they are many.
Rows are cut into runs of powers of two, so that few primitives serve any number of them; the bits
of a row depend on neither the cuts nor the threads. Softmax itself stays NumPy's: oneDNN takes as
long, and loses what is not a number.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.onednn_runs import Runs, together
from skimp._kernels.scratch import Scratch

Array = np.ndarray[Any, Any]

_TYPE: Final = np.dtype(np.float32)
_LEAST: Final = 1 << 15  # elements below which NumPy has done before a primitive is called
SHARED: Final = 1 << 16  # elements of a run that a team shares


def takes(dtype: np.dtype[Any], size: int) -> bool:
    """Whether `backward` takes the rows of a tensor of so many elements."""
    return dtype == _TYPE and size >= _LEAST and onednn.library() is not None


def backward(g: Array, y: Array, out: Array) -> None:
    """out = y * (g - the sum of g * y), for matrices (rows, n); `out`, row-major, may be `g`."""
    for lies in (g, y):
        if not lies.flags.c_contiguous:
            with Scratch(out.shape, _TYPE) as copy:
                copy[...] = lies
                backward(copy if lies is g else g, copy if lies is y else y, out)
            return
    rows, n = out.shape
    matrices, done = shaping.addresses(y, g, out), 0
    while done < rows:
        count = 1 << ((rows - done).bit_length() - 1)
        team = together(count * n >= SHARED)
        _runs(count, n).make([at + done * n * _TYPE.itemsize for at in matrices], team)
        done += count


@lru_cache(256)
def _runs(rows: int, n: int) -> Runs:
    matrix = onednn.layout((rows, n), (n, 1))
    with onednn.team(1):
        primitive = onednn.softmax_gradient(matrix)
    return Runs(primitive, dict.fromkeys((onednn.TO, onednn.GIVEN, onednn.ASKED), matrix))
