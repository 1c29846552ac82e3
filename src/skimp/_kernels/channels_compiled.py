"""Sums over the channels of images, what batch norm makes of them, and its gradients, by loops
(`compiled`), where they are made: each channel is read twice while it is in the cache.

Rows of float32 are added in double, so their bits are others than those of NumPy's ways, which
nobody takes in such a process: whoever has rows asks here. What is made of sums is rounded as by
NumPy, and images are read where they lie, or by rows, with the same bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from skimp._kernels import compiled

Array = np.ndarray[Any, Any]

_FLOAT: Final = np.dtype(np.float32)
_DOUBLE: Final = np.dtype(np.float64)
_NOTHING: Final = None, None, None, 0.0, 0.0


def adds(dtype: np.dtype[Any]) -> bool:
    """Whether rows of this type are added here: settled for a process."""
    return dtype == _FLOAT and compiled.loops() is not None


def type_of_sums(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of the sums of rows of this type."""
    return _DOUBLE if adds(dtype) else dtype


def summed(x: Array, y: Array) -> Array:
    """The sum of each row, and that of its products with the other's, (2, rows, 1)."""
    sums = np.empty((2, len(x), 1), _DOUBLE)
    rows = np.ascontiguousarray(x)
    compiled.loops().summed(rows, rows if y is x else np.ascontiguousarray(y), sums[..., 0])
    return sums


def normed(
    x: Array,
    eps: float,
    weight: Array | None,
    bias: Array | None,
    running: Any,
    moving: tuple[Any, Any, float],
    made: bool,
) -> tuple[Any, ...] | None:
    """(moments, mean, rstd, a, b, x * a + b), the last None if it is not to be `made`, of images;
    moves the `running` statistics, if any, of which so much is kept (`moving`), and added of the
    moments of a sample, so many times as large. None where arrays lie otherwise."""
    given = [a for a in (x, weight, bias, *running) if a is not None]
    loops = compiled.taking(*given)
    if loops is None:
        return None
    count = x.shape[1]
    moments, numbers = np.empty((2, count)), [np.empty(count, _FLOAT) for _ in range(4)]
    out = np.empty(x.shape, _FLOAT) if made else None
    rows, into = [None if a is None else a.reshape(x.shape[0] * count, -1) for a in (x, out)]
    means, variances = running or (None, None)
    loops.normed(rows, weight, bias, eps, means, variances, *moving, moments, *numbers, into)
    return moments, *numbers, out


def normed_back(
    g: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    given: bool,
    out: Array,
    passed: tuple[Any, ...] = _NOTHING,
) -> tuple[Array, Array] | None:
    """out = the gradient of images, from that of what `normed` makes of them; those of weight and
    bias. Of the former what passes a rectifier, of images times numbers for each channel, plus
    others, with its limits, if they are `passed`. None where arrays lie otherwise."""
    arrays = [a for a in (g, x, mean, rstd, weight, out, *passed[:3]) if a is not None]
    loops = compiled.taking(*arrays)
    if loops is None:
        return None
    count = x.shape[1]
    rows = x.shape[0] * count, -1
    dw, db = np.empty(count, _FLOAT), np.empty(count, _FLOAT)
    own, other, into = g.reshape(rows), x.reshape(rows), out.reshape(rows)
    seen = None if passed[0] is None else passed[0].reshape(rows)
    loops.normed_back(own, other, seen, *passed[1:], mean, rstd, weight, given, dw, db, into)
    return dw, db
