"""Loops over single elements, which `skimp compile` makes C of (`compiled`); the types that it
takes are in `loops.pxd`. As they stand they run on NumPy's arrays, slowly, which is how tests
compare them with what they stand for. Each operation is rounded by itself, so bits are NumPy's.
"""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:  # else they are C's (`loops.pxd`)
    from numpy import float32, float64, ldexp, log

    def _of(x: Any) -> Any:
        """Where an array's numbers are, to be read; and to be written."""
        return x

    _into = _of

    def _fused(a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        return float32(float64(a) * float64(b) + float64(c))


__all__ = [
    "added", "filled", "gru_back", "gru_shown", "kept", "log_softmaxes", "log_softmaxes_back",
    "lstm_back", "lstm_carried", "passed", "softmaxes", "softmaxes_back", "stays", "weighed",
]  # fmt: skip


def stays(state: Any, room: Any, out: Any, high: Any, low: Any) -> None:
    """out = whether pairs of mt19937's next words, each of 53 bits, the first word's first, are
    below those of (high, low). `state` is its 624 words and how many of them are drawn; 626 words
    of `room` are written to.
    """
    matrix, one, other = 0x9908B0DF, 0x9D2C5680, 0xEFC60000
    n = out.shape[0]
    at = int(state[624])
    have = done = 0
    while done < n:
        if at == 624:
            _twist(state, matrix)
            at = 0
        count = min(2 * (n - done) - have, 624 - at)
        _temper(state, at, room, have, count, one, other)
        at += count
        have += count
        _below(room, out, done, have // 2, high, low)
        done += have // 2
        if have % 2 == 1:
            room[0] = room[have - 1]
        have = have % 2
    state[624] = at


def _twist(key: Any, matrix: Any) -> None:
    """The next 624 of mt19937's numbers (Matsumoto and Nishimura 1998)."""
    for i in range(227):
        key[i] = key[i + 397] ^ _mixed(key[i], key[i + 1], matrix)
    for i in range(227, 623):
        key[i] = key[i - 227] ^ _mixed(key[i], key[i + 1], matrix)
    key[623] = key[396] ^ _mixed(key[623], key[0], matrix)


def _mixed(upper: Any, lower: Any, matrix: Any) -> Any:
    y = (upper >> 31 << 31) | (lower & 0x7FFFFFFF)
    return (y >> 1) ^ ((y & 1) * matrix)


def _temper(key: Any, at: Any, words: Any, to: Any, count: Any, one: Any, other: Any) -> None:
    for i in range(count):
        y = key[at + i]
        y = y ^ (y >> 11)
        y = y ^ ((y << 7) & one)
        y = y ^ ((y << 15) & other)
        words[to + i] = y ^ (y >> 18)


def _below(words: Any, out: Any, to: Any, count: Any, high: Any, low: Any) -> None:
    for i in range(count):
        first = words[2 * i] & 0x1FFFFF
        out[to + i] = (first < high) | ((first == high) & (words[2 * i + 1] < low))


def kept(x: Any, stays: Any, scale: Any, out: Any) -> None:
    """out = x * (stays * scale)"""
    for i in range(out.shape[0]):
        out[i] = x[i] * (stays[i] * scale)


def passed(g: Any, x: Any, low: Any, high: Any, out: Any) -> None:
    """out = g where x is between the limits or NaN, else 0; NaN as a limit is none."""
    for i in range(out.shape[0]):
        out[i] = 0 if (x[i] <= low) | (x[i] >= high) else g[i]


def added(target: Any, places: Any, rows: Any) -> Any:
    """target[places[i]] += rows[i], one after the other; whether it is done, as nothing is where
    a place is not one of the target's."""
    if _lie_outside(places, target.shape[0]):
        return False
    for i in range(places.shape[0]):
        at = places[i]
        for k in range(target.shape[1]):
            target[at, k] += rows[i, k]
    return True


def weighed(target: Any, places: Any, rows: Any, of: Any, by: Any) -> Any:
    """target[places[i]] += rows[of[i]] * by[i]; likewise."""
    if _lie_outside(places, target.shape[0]) or _lie_outside(of, rows.shape[0]):
        return False
    for i in range(places.shape[0]):
        at, row, factor = places[i], of[i], by[i]
        for k in range(target.shape[1]):
            target[at, k] += rows[row, k] * factor
    return True


def _lie_outside(places: Any, n: Any) -> Any:
    found = 0
    for i in range(places.shape[0]):
        found |= (places[i] < 0) | (places[i] >= n)
    return found


def lstm_carried(gates: Any, before: Any, out: Any) -> None:
    """out = the cell after a step: f * before + i * g"""
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = gates[1, r, k] * before[r, k] + gates[0, r, k] * gates[2, r, k]


def lstm_back(
    gates: Any, before: Any, top: Any, dh: Any, dc: Any, room: Any, d: Any, out: Any
) -> None:
    """d = the gradients of a step's gates, (batch, 4 * hidden), in whose memory they may be, and
    out = that of the cell before it, by those of its result and of its cell, whose tanh is `top`.
    """
    one = 1.0
    n = out.shape[1]
    for r in range(out.shape[0]):
        for k in range(n):
            out[r, k] = dc[r, k] + dh[r, k] * ((one - top[r, k] * top[r, k]) * gates[3, r, k])
        for k in range(n):
            room[0, r, k] = (one - gates[0, r, k]) * gates[0, r, k] * gates[2, r, k] * out[r, k]
        for k in range(n):
            room[1, r, k] = (one - gates[1, r, k]) * gates[1, r, k] * before[r, k] * out[r, k]
        for k in range(n):
            room[2, r, k] = (one - gates[2, r, k] * gates[2, r, k]) * gates[0, r, k] * out[r, k]
        for k in range(n):
            room[3, r, k] = (one - gates[3, r, k]) * gates[3, r, k] * top[r, k] * dh[r, k]
        for k in range(n):
            out[r, k] = out[r, k] * gates[1, r, k]
    for r in range(out.shape[0]):
        for gate in range(4):
            for k in range(n):
                d[r, gate * n + k] = room[gate, r, k]


def gru_shown(gates: Any, before: Any, out: Any) -> None:
    """out = the result of a step: (before - new) * update + new"""
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            new = gates[2, r, k]
            out[r, k] = (before[r, k] - new) * gates[1, r, k] + new


def gru_back(
    gates: Any, hidden: Any, before: Any, dh: Any, room: Any, d: Any, behind: Any, resets: Any,
    out: Any,
) -> None:  # fmt: skip
    """d = the gradients of a step's gates, (batch, 3 * hidden), in whose memory they may be, behind
    = those behind its hidden part, in whose memory `resets` may be, which get the resets; and out =
    what of the result's goes to the state before it, beside them."""
    one = 1.0
    n = out.shape[1]
    for r in range(out.shape[0]):
        for k in range(n):
            new = gates[2, r, k]
            room[r, k] = (one - new * new) * (one - gates[1, r, k])
        for k in range(n):
            reset = gates[0, r, k]
            behind[r, k] = (one - reset) * reset * hidden[r, k] * room[r, k] * dh[r, k]
        for k in range(n):
            update = gates[1, r, k]
            new = before[r, k] - gates[2, r, k]
            behind[r, n + k] = (one - update) * update * new * dh[r, k]
        for k in range(n):
            room[r, k] = room[r, k] * dh[r, k]
            behind[r, 2 * n + k] = room[r, k] * gates[0, r, k]
        for k in range(n):
            out[r, k] = dh[r, k] * gates[1, r, k]
    for r in range(out.shape[0]):
        for k in range(n):
            resets[r, k] = gates[0, r, k]
    for r in range(out.shape[0]):
        for k in range(2 * n):
            d[r, k] = behind[r, k]
        for k in range(n):
            d[r, 2 * n + k] = room[r, k]


def filled(mask: Any, value: Any, x: Any, out: Any) -> None:
    """out = value where the mask is set, else x, of as many rows as are repeated of the mask."""
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = value if mask[k] else x[r, k]


# -- functions of rows, with bits of their own: a row's are up to that row alone -------------------
#
# Arrays lie flat, rows of n one after the other. Sums and the largest are of 32 lanes, and of 8
# where less than 32 are left; rows are cut at 2,048, and what pieces sum up to is added in double.


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
