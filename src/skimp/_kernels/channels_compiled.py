"""Sums over the channels of images, what batch norm makes of them, and its gradients, by loops
(`compiled`), where they are made: each channel is read twice while it is in the cache.

Rows of float32 are added in double, so their bits are others than those of NumPy's ways, which
nobody takes in such a process: whoever has rows asks here. What is made of sums is rounded as by
NumPy, and images are read where they lie, or by rows, with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

import numpy as np

from skimp._kernels import channels_onednn, compiled, shaping, sharing
from skimp._kernels.channels_onednn import Limits
from skimp.config import config

Array = np.ndarray[Any, Any]

_FLOAT: Final = np.dtype(np.float32)
_DOUBLE: Final = np.dtype(np.float64)
PIECE: Final = 1 << 19  # elements of channels that one call goes through
_ADDED: Final = 0.2e-9  # seconds for each element of what is added up, and of a channel, both ways
_NORMED: Final = 0.45e-9
_BACK: Final = 0.8e-9
_FREE: Final = -inf, inf
_NOTHING: Final = None, None, None, 0.0, 0.0


def adds(dtype: np.dtype[Any]) -> bool:
    """Whether rows of this type are added here: settled for a process."""
    return dtype == _FLOAT and compiled.loops() is not None


def type_of_sums(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of the sums of rows of this type."""
    return _DOUBLE if adds(dtype) else dtype


def summed(x: Array, y: Array, sums: Array) -> None:
    """sums = those of rows, and of their products with the other's, (2, rows, 1)."""
    rows = np.ascontiguousarray(x)
    loops, other = compiled.loops(), rows if y is x else np.ascontiguousarray(y)
    if sums.flags.c_contiguous:
        sharing.call(loops.summed, rows.size, _ADDED, rows, other, sums[..., 0])
        return
    made = np.empty((2, len(x)), _DOUBLE)
    sharing.call(loops.summed, rows.size, _ADDED, rows, other, made)
    sums[..., 0] = made


def lined(
    x: Array, a: Array, b: Array, plus: Array | None, hold: Limits | None, out: Array
) -> tuple[Any, ...] | None:
    """The loop that makes out = x * a + b (+ plus), held between two numbers if they are given,
    with how many elements it goes over, what each takes and its arguments: for `sharing`. It may
    be where x is, or what is added. None where arrays lie otherwise, or are few."""
    if out.size < sharing.FROM or x.shape != out.shape:
        return None
    if plus is not None and plus.shape != out.shape:
        return None
    loops = compiled.taking(x, out) if plus is None else compiled.taking(x, out, plus)
    if loops is None or not a.dtype.char == b.dtype.char == "f":
        return None
    sizes = channels_onednn.sizes_by(x.shape, (a.shape, a.strides, b.shape, b.strides))
    if sizes is None or channels_onednn.apart(sizes[1], x, a, b, out, plus) is None:
        return None
    rows, numbers = (-1, sizes[2]), [v[channels_onednn.once(v.strides)].reshape(-1) for v in (a, b)]
    more = None if plus is None else plus.reshape(rows)
    held = hold is not None, *(hold or _FREE)
    args = x.reshape(rows), *numbers, more, *held, out.reshape(rows)
    return loops.lined, out.size, sharing.BRIEF, *args


def normed(
    x: Array,
    eps: float,
    weight: Array | None,
    bias: Array | None,
    running: Sequence[Array],
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
    n, count = x.shape[:2]
    moments, numbers = np.empty((2, count)), [np.empty(count, _FLOAT) for _ in range(4)]
    out = np.empty(x.shape, _FLOAT) if made else None
    rows, into = [None if a is None else a.reshape(n * count, -1) for a in (x, out)]
    means = running or (None, None)
    args = rows, weight, bias, eps, *means, *moving, moments, *numbers, into
    _each(loops.normed, args, count, x.size, _NORMED)
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
    others, with its limits, if they are `passed`. None where arrays lie otherwise. `out` may be g.
    """
    arrays = [a for a in (g, x, mean, rstd, weight, out, *passed[:3]) if a is not None]
    loops = compiled.taking(*arrays)
    if loops is None:
        return None
    n, count = x.shape[:2]
    dw, db = np.empty(count, _FLOAT), np.empty(count, _FLOAT)
    seen, *limits = passed
    images = [None if a is None else a.reshape(n * count, -1) for a in (g, x, seen, out)]
    over = shaping.address(g) == shaping.address(out)
    args = *images[:3], *limits, mean, rstd, weight, given, dw, db, images[3], over
    _each(loops.normed_back, args, count, x.size, _BACK)
    return dw, db


def _each(loop: Any, args: tuple[Any, ...], channels: int, size: int, cost: float) -> None:
    """`loop` for all channels, of so many elements, by a team: a few at a time where these are
    many, so that a signal comes between."""
    if size <= PIECE:
        sharing.call(loop, size, cost, *args, 0, channels)
        return
    team = config.threads
    each = size // channels
    step = max(1, PIECE // each) * team
    for first in range(0, channels, step):
        last = min(first + step, channels)
        sharing.call(loop, (last - first) * each, cost, *args, first, last)
