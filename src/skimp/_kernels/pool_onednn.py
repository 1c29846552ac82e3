"""Averages of windows by oneDNN (`onednn`), where it is installed, with the bits of `pool`.

It adds a window's elements in their order, beginning with 0, and multiplies by one over their
number: of powers of two that is NumPy's quotient. All in one pass over planes where they lie, of
which NumPy makes one for each tap, an element at a time.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.onednn_runs import SHARED, Runs, together

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_TYPE: Final = np.dtype(np.float32)
_LEAST: Final = 1 << 13  # elements below which NumPy has done before a primitive is called
_MOST_DIMS: Final = 3


def average(x: Array, out: Array, divisor: Array, kernel: Ints, stride: Ints) -> bool:
    """out (planes, *places) = the sums of the windows of x (planes, *size) over one divisor, where
    no window reaches outside; whether oneDNN makes it."""
    count = math.prod(kernel)
    if (
        x.size < _LEAST
        or any([a.dtype != _TYPE or not a.flags.c_contiguous for a in (x, out)])
        or not 1 <= len(kernel) == x.ndim - 1 <= _MOST_DIMS
        or divisor.ndim
        or float(divisor) != count
        or count & (count - 1)
        or onednn.library() is None
    ):
        return False
    team = together(x.size >= SHARED)
    runs = _runs(x.shape, out.shape, kernel, stride, team)
    if runs is None:
        return False
    runs.make(shaping.addresses(x, out), team)
    return True


@lru_cache(128)
def _runs(size: Ints, places: Ints, kernel: Ints, stride: Ints, team: int) -> Runs | None:
    planes, results = [
        onednn.layout((1, *s), tuple([math.prod(s[dim:]) for dim in range(len(s) + 1)]))
        for s in (size, places)
    ]
    if team > 1:  # now: what is made when a team rests would be memory that comes late
        _runs(size, places, kernel, stride, 1)
    try:
        with onednn.team(team):
            primitive = onednn.average(planes, results, kernel, stride)
    except onednn.Unsupported:
        return None
    return Runs(primitive, {onednn.FROM: planes, onednn.TO: results})
