"""Softmax of rows, its logarithm, and their gradients; sums are in lanes."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import (
    _into,
    _of,
    log,
    rows_floats,
    rows_is_alike,
    rows_like,
    rows_size,
    rows_width,
)
from skimp._kernels.loops.exponentials import _exps, _less, _powers
from skimp._kernels.loops.sums import _product, _sum, _top


def _by_rows(loop: Any, x: Any, n: Any, out: Any, threads: Any) -> None:
    """A loop over rows of n, by so many threads; few keep the interpreter's lock, for to let go of
    it takes as long."""
    size = out.shape[0]
    if threads > 1:
        rows = size // n
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            loop(_of(x), n, _into(out), t * rows // threads * n, (t + 1) * rows // threads * n)
    elif size < 8192:
        loop(_of(x), n, _into(out), 0, size)
    else:
        with cython.nogil:
            loop(_of(x), n, _into(out), 0, size)


def _back_by_rows(loop: Any, g: Any, y: Any, n: Any, out: Any, threads: Any) -> None:
    """The same of two arrays."""
    size = out.shape[0]
    if threads > 1:
        rows = size // n
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            loop(
                _of(g), _of(y), n, _into(out), t * rows // threads * n,
                (t + 1) * rows // threads * n,
            )  # fmt: skip
    elif size < 8192:
        loop(_of(g), _of(y), n, _into(out), 0, size)
    else:
        with cython.nogil:
            loop(_of(g), _of(y), n, _into(out), 0, size)


def _made(loop: Any, x: Any, dim: Any) -> Any:
    """What a loop makes of rows along a dim, as a new array; None unless `rows_width` says so."""
    n = rows_width(x, dim)
    if n == 0:
        return None
    out = rows_like(x)
    loop(rows_floats(x), n, rows_floats(out), 0, rows_size(x))
    return out


def made_softmaxes(x: Any, dim: Any) -> Any:
    """The softmax of rows along the last dim of a small array, as a new one; None of any other."""
    return _made(_softmaxes, x, dim)


def made_log_softmaxes(x: Any, dim: Any) -> Any:
    """Their logarithms, likewise."""
    return _made(_log_softmaxes, x, dim)


def _made_back(loop: Any, g: Any, y: Any, dim: Any) -> Any:
    n = rows_width(g, dim)
    if n == 0 or not rows_is_alike(y, g):
        return None
    out = rows_like(g)
    loop(rows_floats(g), rows_floats(y), n, rows_floats(out), 0, rows_size(g))
    return out


def made_softmaxes_back(g: Any, y: Any, dim: Any) -> Any:
    """The gradients, likewise."""
    return _made_back(_softmaxes_back, g, y, dim)


def made_log_softmaxes_back(g: Any, y: Any, dim: Any) -> Any:
    """And those of logarithms."""
    return _made_back(_log_softmaxes_back, g, y, dim)


def softmaxes(x: Any, n: Any, out: Any, threads: Any) -> None:
    """out = the softmax of each row of x, which lies elsewhere."""
    _by_rows(_softmaxes, x, n, out, threads)


def _softmaxes(x: Any, n: Any, out: Any, at: Any, stop: Any) -> None:
    """Of the elements from `at` to `stop`, which are whole rows. Nothing is taken off before
    exponentials whose sum says that none is infinite, and that those lost, below 2**-126, are at
    most 2**-125 of it."""
    one, least, most = 1.0, 0.5, 1.2676506e30
    step = 2048 - 2048 % n if 0 < n <= 2048 else n
    if n == 1:  # 1, which a number times one over it need not be; NaN where it is infinite
        for k in range(at, stop):
            out[k] = x[k] - x[k] + one
        at = stop
    while at < stop:
        count = min(step, stop - at)
        _exps(x, at, count, out, at)
        count += at
        while at < count:
            total = _sum(out, at, n)
            if not (total > least and total < most):
                _less(x, at, n, _top(x, at, n), out, at)
                _exps(out, at, n, out, at)
                total = _sum(out, at, n)
            total = one / total
            for k in range(at, at + n):
                out[k] = out[k] * total
            at += n


def softmaxes_back(g: Any, y: Any, n: Any, out: Any, threads: Any) -> None:
    """out = y * (g - the sum of g * y), in whose memory it may be."""
    _back_by_rows(_softmaxes_back, g, y, n, out, threads)


def _softmaxes_back(g: Any, y: Any, n: Any, out: Any, at: Any, stop: Any) -> None:
    while at < stop:
        total = _product(g, y, at, n)
        for k in range(at, at + n):
            out[k] = (g[k] - total) * y[k]
        at += n


def log_softmaxes(x: Any, n: Any, out: Any, threads: Any) -> None:
    """out = the logarithm of each row's softmax, in whose memory it may be."""
    _by_rows(_log_softmaxes, x, n, out, threads)


def _log_softmaxes(x: Any, n: Any, out: Any, at: Any, stop: Any) -> None:
    room = [0.0] * 2048
    step = 2048 - 2048 % n if 0 < n <= 2048 else n
    while at < stop:
        count = min(step, stop - at)
        for r in range(count // n):
            _less(x, at + r * n, n, _top(x, at + r * n, n), out, at + r * n)
        if n <= 2048:
            _exps(out, at, count, room, 0)
        for r in range(count // n):
            level = log(_sum(room, r * n, n) if n <= 2048 else _powers(out, at, n, 0, room))
            for k in range(at, at + n):
                out[k] = out[k] - level
            at += n


def log_softmaxes_back(g: Any, y: Any, n: Any, out: Any, threads: Any) -> None:
    """out = g - exp(y) * the sum of g, which lies elsewhere."""
    _back_by_rows(_log_softmaxes_back, g, y, n, out, threads)


def _log_softmaxes_back(g: Any, y: Any, n: Any, out: Any, at: Any, stop: Any) -> None:
    step = 2048 - 2048 % n if 0 < n <= 2048 else n
    while at < stop:
        count = min(step, stop - at)
        _exps(y, at, count, out, at)
        count += at
        while at < count:
            total = _sum(g, at, n)
            for k in range(at, at + n):
                out[k] = g[k] - out[k] * total
            at += n
