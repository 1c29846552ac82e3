"""Softmax of rows, its logarithm, and their gradients; sums are in lanes."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import _into, _of, log
from skimp._kernels.loops.exponentials import _exps, _less, _powers
from skimp._kernels.loops.sums import _product, _sum, _top


def softmaxes(x: Any, n: Any, out: Any, threads: Any) -> None:
    """out = the softmax of each row of x, which lies elsewhere."""
    if threads > 1:
        rows = out.shape[0] // n
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _softmaxes(
                _of(x), n, _into(out), t * rows // threads * n, (t + 1) * rows // threads * n
            )
    elif out.shape[0] < 8192:
        _softmaxes(_of(x), n, _into(out), 0, out.shape[0])
    else:
        with cython.nogil:
            _softmaxes(_of(x), n, _into(out), 0, out.shape[0])


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
    if threads > 1:
        rows = out.shape[0] // n
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _softmaxes_back(
                _of(g),
                _of(y),
                n,
                _into(out),
                t * rows // threads * n,
                (t + 1) * rows // threads * n,
            )
    elif out.shape[0] < 8192:
        _softmaxes_back(_of(g), _of(y), n, _into(out), 0, out.shape[0])
    else:
        with cython.nogil:
            _softmaxes_back(_of(g), _of(y), n, _into(out), 0, out.shape[0])


def _softmaxes_back(g: Any, y: Any, n: Any, out: Any, at: Any, stop: Any) -> None:
    while at < stop:
        total = _product(g, y, at, n)
        for k in range(at, at + n):
            out[k] = (g[k] - total) * y[k]
        at += n


def log_softmaxes(x: Any, n: Any, out: Any, threads: Any) -> None:
    """out = the logarithm of each row's softmax, in whose memory it may be."""
    if threads > 1:
        rows = out.shape[0] // n
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _log_softmaxes(
                _of(x), n, _into(out), t * rows // threads * n, (t + 1) * rows // threads * n
            )
    elif out.shape[0] < 8192:
        _log_softmaxes(_of(x), n, _into(out), 0, out.shape[0])
    else:
        with cython.nogil:
            _log_softmaxes(_of(x), n, _into(out), 0, out.shape[0])


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
    if threads > 1:
        rows = out.shape[0] // n
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _log_softmaxes_back(
                _of(g),
                _of(y),
                n,
                _into(out),
                t * rows // threads * n,
                (t + 1) * rows // threads * n,
            )
    elif out.shape[0] < 8192:
        _log_softmaxes_back(_of(g), _of(y), n, _into(out), 0, out.shape[0])
    else:
        with cython.nogil:
            _log_softmaxes_back(_of(g), _of(y), n, _into(out), 0, out.shape[0])


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
