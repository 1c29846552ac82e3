"""Rows: softmax and its like."""

from __future__ import annotations

from typing import Any

import cython

from skimp._kernels.loops.arithmetic import _fused, _into, _of, float32, ldexp, log


def softmaxes(x: Any, n: Any, out: Any) -> None:
    """out = the softmax of each row of x, which lies elsewhere."""
    if out.shape[0] < 8192:
        _softmaxes(_of(x), n, _into(out), 0, out.shape[0])
    else:
        with cython.nogil:
            _softmaxes(_of(x), n, _into(out), 0, out.shape[0])


def _softmaxes(x: Any, n: Any, out: Any, at: Any, stop: Any) -> None:
    """Of the elements from `at` to `stop`, which are whole rows. Nothing is taken off before
    exponentials whose sum says that none is infinite, and none that counts is lost."""
    one, least, most = 1.0, 1.8626451e-09, 1.2676506e30
    step = 2048 - 2048 % n if 0 < n <= 2048 else n
    while at < stop:
        count = min(step, stop - at)
        _exps(x, at, count, out, at)
        count += at
        while at < count:
            total = _sum(out, at, n)
            if not (total > least and total < most):
                _less(x, at, n, _top(x, at, n), out)
                _exps(out, at, n, out, at)
                total = _sum(out, at, n)
            total = one / total
            for k in range(at, at + n):
                out[k] = out[k] * total
            at += n


def softmaxes_back(g: Any, y: Any, n: Any, out: Any) -> None:
    """out = y * (g - the sum of g * y), in whose memory it may be."""
    if out.shape[0] < 8192:
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


def log_softmaxes(x: Any, n: Any, out: Any) -> None:
    """out = the logarithm of each row's softmax, in whose memory it may be."""
    if out.shape[0] < 8192:
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
            _less(x, at + r * n, n, _top(x, at + r * n, n), out)
        if n <= 2048:
            _exps(out, at, count, room, 0)
        for r in range(count // n):
            level = log(_sum(room, r * n, n) if n <= 2048 else _powers(out, at, n, room))
            for k in range(at, at + n):
                out[k] = out[k] - level
            at += n


def log_softmaxes_back(g: Any, y: Any, n: Any, out: Any) -> None:
    """out = g - exp(y) * the sum of g, which lies elsewhere."""
    if out.shape[0] < 8192:
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


def _less(x: Any, at: Any, n: Any, number: Any, out: Any) -> None:
    for k in range(at, at + n):
        out[k] = x[k] - number


def _powers(x: Any, at: Any, n: Any, room: Any) -> Any:
    """The sum of exp(x) of a row."""
    found = 0.0
    while n > 2048:
        _exps(x, at, 2048, room, 0)
        found += _piece_of_sum(room, 0, 2048)
        at += 2048
        n -= 2048
    _exps(x, at, n, room, 0)
    return found + _piece_of_sum(room, 0, n)


def _exps(x: Any, at: Any, n: Any, out: Any, to: Any) -> None:
    """out = exp(x), in whose memory it may be."""
    room = [0.0] * 32
    while n > 32:
        for j in range(32):
            room[j] = _exp(x[at + j])
        for j in range(32):
            out[to + j] = room[j]
        at += 32
        to += 32
        n -= 32
    for j in range(n):
        room[j] = x[at + j]
    for j in range(32):
        room[j] = _exp(room[j])
    for j in range(n):
        out[to + j] = room[j]


def _exp(v: Any) -> Any:
    """exp(v), within 1 ulp, by 2**k * exp(r), k whole and r at most ln(2) / 2; its polynomial is
    the one of degree 6 that is off least. 0 below the least normal number, infinite above 88.37.
    """
    least, most, per, magic = -87.33654, 89.0, 1.44269504, 12582912.0
    high, low, one = -0.693145751953125, -1.42860677e-06, 1.0
    c2, c3, c4, c5, c6 = 0.49999994, 0.1666652, 0.041668393, 0.008368781, 0.0013814467
    w = least if v < least else v  # what is not a number stays
    w = most if w > most else w
    k = _fused(w, per, magic) - magic
    r = _fused(k, low, _fused(k, high, w))
    q = _fused(_fused(_fused(_fused(c6, r, c5), r, c4), r, c3), r, c2)
    e = (_fused(q, r * r, r) + one) * _two_to(k)
    return 0 if v < least else e


def _two_to(k: Any) -> Any:
    """2**k, of a whole number from -126 to 128, which is infinite; of NaN, anything."""
    if cython.compiled:
        bits = (cython.cast(cython.int, k) + 127) << 23
        return cython.cast(cython.p_float, cython.address(bits))[0]
    return ldexp(float32(1), int(k)) if k == k else k


def _top(x: Any, at: Any, n: Any) -> Any:
    """The largest of a row; of one that holds NaN, any."""
    top = x[at]
    lanes = [top] * 32
    stop = at + n
    while stop - at >= 32:
        for j in range(32):
            lanes[j] = x[at + j] if x[at + j] > lanes[j] else lanes[j]
        at += 32
    if n >= 32:
        for j in range(16):
            lanes[j] = lanes[16 + j] if lanes[16 + j] > lanes[j] else lanes[j]
        for j in range(8):
            lanes[j] = lanes[8 + j] if lanes[8 + j] > lanes[j] else lanes[j]
    while stop - at >= 8:
        for j in range(8):
            lanes[j] = x[at + j] if x[at + j] > lanes[j] else lanes[j]
        at += 8
    if n >= 8:
        for j in range(4):
            lanes[j] = lanes[4 + j] if lanes[4 + j] > lanes[j] else lanes[j]
        for j in range(4):
            top = lanes[j] if lanes[j] > top else top
    while at < stop:
        top = x[at] if x[at] > top else top
        at += 1
    return top


def _sum(x: Any, at: Any, n: Any) -> Any:
    found = 0.0
    while n > 2048:
        found += _piece_of_sum(x, at, 2048)
        at += 2048
        n -= 2048
    return found + _piece_of_sum(x, at, n)


def _piece_of_sum(x: Any, at: Any, n: Any) -> Any:
    rest = 0.0
    lanes = [rest] * 32
    stop = at + n
    while stop - at >= 32:
        for j in range(32):
            lanes[j] += x[at + j]
        at += 32
    if n >= 32:
        _join(lanes)
    while stop - at >= 8:
        for j in range(8):
            lanes[j] += x[at + j]
        at += 8
    while at < stop:
        rest += x[at]
        at += 1
    return _joined(lanes) + rest if n >= 8 else rest


def _product(x: Any, y: Any, at: Any, n: Any) -> Any:
    """The sum of a row's products."""
    found = 0.0
    while n > 2048:
        found += _piece_of_product(x, y, at, 2048)
        at += 2048
        n -= 2048
    return found + _piece_of_product(x, y, at, n)


def _piece_of_product(x: Any, y: Any, at: Any, n: Any) -> Any:
    rest = 0.0
    lanes = [rest] * 32
    stop = at + n
    while stop - at >= 32:
        for j in range(32):
            lanes[j] += x[at + j] * y[at + j]
        at += 32
    if n >= 32:
        _join(lanes)
    while stop - at >= 8:
        for j in range(8):
            lanes[j] += x[at + j] * y[at + j]
        at += 8
    while at < stop:
        rest += x[at] * y[at]
        at += 1
    return _joined(lanes) + rest if n >= 8 else rest


def _join(lanes: Any) -> None:
    """32 lanes as 8."""
    for j in range(16):
        lanes[j] += lanes[16 + j]
    for j in range(8):
        lanes[j] += lanes[8 + j]


def _joined(lanes: Any) -> Any:
    """The sum of 8 lanes."""
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + (
        (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
    )
