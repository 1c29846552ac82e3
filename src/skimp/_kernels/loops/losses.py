"""Losses of rows at classes; sums are in lanes."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import (
    _into,
    _of,
    _places,
    log,
    rows_are_classes,
    rows_floats,
    rows_kept,
    rows_places,
    rows_size,
    rows_width,
)
from skimp._kernels.loops.exponentials import _exps, _less, _powers
from skimp._kernels.loops.places import _lie_outside
from skimp._kernels.loops.sums import _sum, _top


def class_losses(x: Any, classes: Any, n: Any, losses: Any, levels: Any, threads: Any) -> Any:
    """levels = the logarithms of the sums of exponentials of rows; losses = those less each row's
    element of its class. Whether it is done, as nothing is where a class is none."""
    if _lie_outside(_places(classes), classes.shape[0], n):
        return False
    rows = losses.shape[0]
    if threads > 1:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _class_losses(
                _of(x), _places(classes), n, _into(losses), _into(levels), t * rows // threads,
                (t + 1) * rows // threads,
            )  # fmt: skip
    elif x.shape[0] < 8192:
        _class_losses(_of(x), _places(classes), n, _into(losses), _into(levels), 0, rows)
    else:
        with cython.nogil:
            _class_losses(_of(x), _places(classes), n, _into(losses), _into(levels), 0, rows)
    return True


def made_class_losses(x: Any, classes: Any) -> Any:
    """(the mean of `class_losses`, levels) of a small matrix, as new arrays; None of any other."""
    n = rows_width(x, -1)
    if n == 0 or not rows_are_classes(classes, x):
        return None
    losses, levels, mean = rows_kept(x, 1, 0), rows_kept(x, 1, 0), rows_kept(x, 0, 0)
    rows = rows_size(losses)
    if _lie_outside(rows_places(classes), rows, n):
        return None
    of = rows_floats(losses)
    _class_losses(rows_floats(x), rows_places(classes), n, of, rows_floats(levels), 0, rows)
    count = rows
    rows_floats(mean)[0] = _sum(of, 0, rows) / count
    return mean, levels


def _class_losses(
    x: Any, classes: Any, n: Any, losses: Any, levels: Any, first: Any, last: Any
) -> None:
    room = [0.0] * 2048
    step = 2048 // n if n <= 2048 else 1
    while first < last:
        count = min(step, last - first)
        for r in range(count):
            levels[first + r] = _top(x, (first + r) * n, n)
            if n <= 2048:
                _less(x, (first + r) * n, n, levels[first + r], room, r * n)
        if n <= 2048:
            _exps(room, 0, count * n, room, 0)
        for r in range(count):
            at = first + r
            top = levels[at]
            level = log(_sum(room, r * n, n) if n <= 2048 else _powers(x, at * n, n, top, room))
            losses[at] = level - (x[at * n + classes[at]] - top)
            levels[at] = level + top
        first += count


def class_gradients(
    x: Any, classes: Any, levels: Any, whole: Any, own: Any, n: Any, out: Any, threads: Any
) -> Any:
    """out = exp(x - its row's level) times the row's number of `whole`, and less that of its `own`
    at its class. Whether it is done, as above."""
    if _lie_outside(_places(classes), classes.shape[0], n):
        return False
    rows = levels.shape[0]
    if threads > 1:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _class_gradients(
                _of(x), _places(classes), _of(levels), _of(whole), _of(own), n, _into(out),
                t * rows // threads, (t + 1) * rows // threads,
            )  # fmt: skip
    elif x.shape[0] < 8192:
        _class_gradients(
            _of(x), _places(classes), _of(levels), _of(whole), _of(own), n, _into(out), 0, rows
        )
    else:
        with cython.nogil:
            _class_gradients(
                _of(x), _places(classes), _of(levels), _of(whole), _of(own), n, _into(out), 0, rows
            )
    return True


def _class_gradients(
    x: Any, classes: Any, levels: Any, whole: Any, own: Any, n: Any, out: Any, first: Any, last: Any
) -> None:
    step = 2048 // n if n <= 2048 else 1
    while first < last:
        count = min(step, last - first)
        for r in range(first, first + count):
            _less(x, r * n, n, levels[r], out, r * n)
        _exps(out, first * n, count * n, out, first * n)
        for r in range(first, first + count):
            factor = whole[r] / _sum(out, r * n, n)  # 1, but for what rounding a level took
            for k in range(r * n, r * n + n):
                out[k] = out[k] * factor
            out[r * n + classes[r]] -= own[r]
        first += count
