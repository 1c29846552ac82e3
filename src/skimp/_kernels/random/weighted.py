"""Draws by weight: torch.multinomial."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare
from skimp._kernels.random.arithmetic import log1p, narrowed
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.normal import uniform53
from skimp._kernels.scratch import row_extremes

I64 = NDArray[np.int64]


def multinomial(weights: NDArray[Any], n: int, replacement: bool, engine: Engine) -> I64:
    """torch.multinomial: n indices for the weights, or for each of their rows.

    Equal scores come in the order of their indices, while PyTorch's topk leaves their order to the
    C++ library: weights of 0 that must be drawn, and coincidences in 16-bit types.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    if not replacement and n > rows.shape[1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    with engine.lock:
        draw = _with_replacement if replacement and n > 1 else _without_replacement
        result: I64 = draw(rows, n, engine)
    return result.reshape((*weights.shape[:-1], n))


def _with_replacement(rows: NDArray[Any], n: int, engine: Engine) -> I64:
    result = np.empty((rows.shape[0], n), np.int64)
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        _by_chance(rows[start : start + step], engine, result[start : start + step])
    return result


def _by_chance(rows: NDArray[Any], engine: Engine, out: I64) -> None:
    """Where uniform numbers fall between the sums of each row's first weights."""
    wide = rows.astype(np.float64 if rows.dtype == np.float64 else np.float32, copy=False)
    sums = np.add.accumulate(wide, axis=1)
    totals = sums[:, -1:].copy()
    least = row_extremes(np.minimum, wide.reshape(1, -1)).item()
    # of one row numbers, which are compared sooner than arrays
    low, high = (totals.item(),) * 2 if len(rows) == 1 else (totals.min(), totals.max())
    if not (least >= 0 and low > 0 and high < math.inf):
        _refuse(wide, totals, out.shape[1], engine)
    sums /= totals
    sums[:, -1] = 1
    chances = sums.astype(np.float64, copy=False)
    uniforms = uniform53(out.size, engine).reshape(out.shape)
    for i in range(len(rows)):
        out[i] = chances[i].searchsorted(uniforms[i])


def _refuse(rows: NDArray[Any], totals: NDArray[Any], n: int, engine: Engine) -> None:
    """Raise for the first row that can't be drawn from, when those before it are drawn."""
    for i, row in enumerate(rows):
        reason = None
        if not bare.lowest(row) >= 0:
            reason = "encountering probability entry < 0"
        elif not totals[i] < math.inf and bare.highest(row) == math.inf:
            reason = "encountering probability entry = infinity or NaN"
        elif not totals[i] > 0:
            reason = "sum of probabilities <= 0"
        if reason is not None:
            engine.random64(i * n)
            raise RuntimeError(f"invalid multinomial distribution ({reason})")


def _without_replacement(rows: NDArray[Any], n: int, engine: Engine) -> I64:
    """The largest of weight / exponential: a race of exponential clocks."""
    if rows.size:
        most = row_extremes(np.maximum, rows)
        least = row_extremes(np.minimum, rows.reshape(1, -1)).item()
        if not (least >= 0 and most.item(most.argmax()) < math.inf):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not most.item(most.argmin()) > 0:
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    if len(rows) <= step:
        return _first(rows, n, engine)
    result = np.empty((rows.shape[0], n), np.int64)
    for start in range(0, rows.shape[0], step):
        result[start : start + step] = _first(rows[start : start + step], n, engine)
    return result


_BLOCK: Final = 1 << 16


def _first(rows: NDArray[Any], n: int, engine: Engine) -> I64:
    """The n clocks of each row that ring first."""
    clocks = log1p(-uniform53(rows.size, engine))  # of which none is too large for a type
    narrow = clocks.astype(rows.dtype) if rows.itemsize > 2 else narrowed(clocks, rows.dtype)
    scores = rows / narrow.reshape(rows.shape)  # negative, so the least
    if n == 1:
        best: I64 = scores.argmin(axis=1)
        return best.reshape(-1, 1)
    return np.argsort(scores, axis=1, kind="stable")[:, :n]
