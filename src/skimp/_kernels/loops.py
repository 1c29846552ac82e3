"""Loops over single elements, which `skimp compile` makes C of (`compiled`); the types that it
takes are in `loops.pxd`. As they stand they run on NumPy's arrays, slowly, which is how tests
compare them with what they stand for. Each operation is rounded by itself, so bits are NumPy's.
"""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:  # else they are C's (`loops.pxd`)
    from numpy import float32, float64, ldexp, log, sqrt

    def _of(x: Any) -> Any:
        """Where an array's numbers are, to be read; and to be written."""
        return x

    _into = _places = _of

    def _fused(a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        return float32(float64(a) * float64(b) + float64(c))


__all__ = [
    "added", "attended", "attended_back", "class_gradients", "class_losses", "filled", "gru_back",
    "gru_shown", "kept", "log_softmaxes", "log_softmaxes_back", "lstm_back", "lstm_carried",
    "normalized", "normalized_back", "passed", "softmaxes", "softmaxes_back", "stays", "weighed",
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
                _less(x, at, n, _top(x, at, n), out, at)
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
            _less(x, at + r * n, n, _top(x, at + r * n, n), out, at + r * n)
        if n <= 2048:
            _exps(out, at, count, room, 0)
        for r in range(count // n):
            level = log(_sum(room, r * n, n) if n <= 2048 else _powers(out, at, n, 0, room))
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


def _less(x: Any, at: Any, n: Any, number: Any, out: Any, to: Any) -> None:
    for k in range(n):
        out[to + k] = x[at + k] - number


def _powers(x: Any, at: Any, n: Any, number: Any, room: Any) -> Any:
    """The sum of exp(x - number) of a row."""
    found = 0.0
    while n > 0:
        count = min(n, 2048)
        _less(x, at, count, number, room, 0)
        _exps(room, 0, count, room, 0)
        found += _piece_of_sum(room, 0, count)
        at += count
        n -= count
    return found


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


def normalized(
    x: Any, w: Any, b: Any, n: Any, eps: Any, centre: Any, mean: Any, rstd: Any, out: Any
) -> None:
    """out = each row of x, which lies elsewhere, less its mean if rows are to `centre`, over its
    deviation, times w, plus b, if these are not None; with the means and one over deviations."""
    how = 4 * centre + 2 * (w is not None) + (b is not None)
    rows = rstd.shape[0]
    if out.shape[0] < 8192:
        _normalized(
            _of(x), _of(w), _of(b), n, eps, how, _into(mean), _into(rstd), _into(out), 0, rows
        )
    else:
        with cython.nogil:
            _normalized(
                _of(x), _of(w), _of(b), n, eps, how, _into(mean), _into(rstd), _into(out), 0, rows
            )


def _normalized(
    x: Any, w: Any, b: Any, n: Any, eps: Any, how: Any, mean: Any, rstd: Any, out: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    one, size = 1.0, n
    for r in range(first, last):
        at = r * n
        middle = 0
        if how & 4:
            middle = _sum(x, at, n) / size
            mean[r] = middle
        scale = one / sqrt(_squares(x, at, n, middle) / size + eps)
        rstd[r] = scale
        if how & 3 == 3:
            for k in range(n):
                out[at + k] = (x[at + k] - middle) * scale * w[k] + b[k]
        elif how & 2:
            for k in range(n):
                out[at + k] = (x[at + k] - middle) * scale * w[k]
        else:
            for k in range(n):
                out[at + k] = (x[at + k] - middle) * scale
            if how & 1:
                for k in range(n):
                    out[at + k] = out[at + k] + b[k]


def normalized_back(
    g: Any, x: Any, mean: Any, rstd: Any, w: Any, n: Any, centre: Any, affine: Any, out: Any,
    dw: Any, db: Any,
) -> None:  # fmt: skip
    """out = the gradient of `normalized`'s x, elsewhere; and if `affine` those of w and b, added up
    over the rows."""
    rows = rstd.shape[0]
    if out.shape[0] < 8192:
        _normalized_back(
            _of(g), _of(x), _of(mean), _of(rstd), _of(w), n, centre, affine, _into(out), _into(dw),
            _into(db), rows,
        )  # fmt: skip
    else:
        with cython.nogil:
            _normalized_back(
                _of(g), _of(x), _of(mean), _of(rstd), _of(w), n, centre, affine, _into(out),
                _into(dw), _into(db), rows,
            )  # fmt: skip


def _normalized_back(
    g: Any, x: Any, mean: Any, rstd: Any, w: Any, n: Any, centre: Any, affine: Any, out: Any,
    dw: Any, db: Any, rows: Any,
) -> None:  # fmt: skip
    size = n
    sums = [0.0] * 2
    if affine:
        for k in range(n):
            dw[k] = 0
        for k in range(n):
            db[k] = 0
    for r in range(rows):
        at = r * n
        middle = mean[r] if centre else 0
        scale = rstd[r]
        _both_sums(g, x, w, at, n, middle, scale, sums)
        along = sums[0] / size
        apart = sums[1] / size if centre else 0
        if affine:
            for k in range(n):
                dw[k] += g[at + k] * ((x[at + k] - middle) * scale)
            for k in range(n):
                db[k] += g[at + k]
        for k in range(n):
            out[at + k] = (g[at + k] * w[k] - (x[at + k] - middle) * scale * along - apart) * scale


def _squares(x: Any, at: Any, n: Any, middle: Any) -> Any:
    """The sum of a row's squared distances from a number."""
    found = 0.0
    while n > 2048:
        found += _piece_of_squares(x, at, 2048, middle)
        at += 2048
        n -= 2048
    return found + _piece_of_squares(x, at, n, middle)


def _piece_of_squares(x: Any, at: Any, n: Any, middle: Any) -> Any:
    rest = 0.0
    lanes = [rest] * 32
    stop = at + n
    while stop - at >= 32:
        for j in range(32):
            lanes[j] += (x[at + j] - middle) * (x[at + j] - middle)
        at += 32
    if n >= 32:
        _join(lanes)
    while stop - at >= 8:
        for j in range(8):
            lanes[j] += (x[at + j] - middle) * (x[at + j] - middle)
        at += 8
    while at < stop:
        rest += (x[at] - middle) * (x[at] - middle)
        at += 1
    return _joined(lanes) + rest if n >= 8 else rest


def _both_sums(g: Any, x: Any, w: Any, at: Any, n: Any, middle: Any, scale: Any, sums: Any) -> None:
    """Of g * w, and of that times normalized x; of pieces as above."""
    one = other = 0.0
    done = 0
    while done < n:
        count = min(2048, n - done)
        _pieces_of_both(g, x, w, at, done, count, middle, scale, sums)
        one += sums[0]
        other += sums[1]
        done += count
    sums[0] = one
    sums[1] = other


def _pieces_of_both(
    g: Any, x: Any, w: Any, at: Any, k: Any, n: Any, middle: Any, scale: Any, sums: Any
) -> None:
    rest = also = 0.0
    lanes, others = [rest] * 32, [also] * 32
    stop = k + n
    while stop - k >= 32:
        for j in range(32):
            lanes[j] += g[at + k + j] * w[k + j] * ((x[at + k + j] - middle) * scale)
        for j in range(32):
            others[j] += g[at + k + j] * w[k + j]
        k += 32
    if n >= 32:
        _join(lanes)
        _join(others)
    while stop - k >= 8:
        for j in range(8):
            lanes[j] += g[at + k + j] * w[k + j] * ((x[at + k + j] - middle) * scale)
        for j in range(8):
            others[j] += g[at + k + j] * w[k + j]
        k += 8
    while k < stop:
        also += g[at + k] * w[k]
        rest += g[at + k] * w[k] * ((x[at + k] - middle) * scale)
        k += 1
    sums[0] = _joined(lanes) + rest if n >= 8 else rest
    sums[1] = _joined(others) + also if n >= 8 else also


def class_losses(x: Any, classes: Any, n: Any, losses: Any, levels: Any) -> Any:
    """levels = the logarithms of the sums of exponentials of rows; losses = those less each row's
    element of its class. Whether it is done, as nothing is where a class is none."""
    if _lie_outside(classes, n):
        return False
    if x.shape[0] < 8192:
        _class_losses(_of(x), _places(classes), n, _into(losses), _into(levels), losses.shape[0])
    else:
        with cython.nogil:
            _class_losses(
                _of(x), _places(classes), n, _into(losses), _into(levels), losses.shape[0]
            )
    return True


def _class_losses(x: Any, classes: Any, n: Any, losses: Any, levels: Any, rows: Any) -> None:
    room = [0.0] * 2048
    step = 2048 // n if n <= 2048 else 1
    first = 0
    while first < rows:
        count = min(step, rows - first)
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
    x: Any, classes: Any, levels: Any, whole: Any, own: Any, n: Any, out: Any
) -> Any:
    """out = exp(x - its row's level) times the row's number of `whole`, and less that of its `own`
    at its class. Whether it is done, as above."""
    if _lie_outside(classes, n):
        return False
    if x.shape[0] < 8192:
        _class_gradients(
            _of(x), _places(classes), _of(levels), _of(whole), _of(own), n, _into(out),
            levels.shape[0],
        )  # fmt: skip
    else:
        with cython.nogil:
            _class_gradients(
                _of(x), _places(classes), _of(levels), _of(whole), _of(own), n, _into(out),
                levels.shape[0],
            )  # fmt: skip
    return True


def _class_gradients(
    x: Any, classes: Any, levels: Any, whole: Any, own: Any, n: Any, out: Any, rows: Any
) -> None:
    step = 2048 // n if n <= 2048 else 1
    first = 0
    while first < rows:
        count = min(step, rows - first)
        for r in range(first, first + count):
            _less(x, r * n, n, levels[r], out, r * n)
        _exps(out, first * n, count * n, out, first * n)
        for r in range(first, first + count):
            factor = whole[r]
            for k in range(r * n, r * n + n):
                out[k] = out[k] * factor
            out[r * n + classes[r]] -= own[r]
        first += count


# -- attention ------------------------------------------------------------------------------------


def attended(s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any) -> None:
    """The scores s become what values are weighed by, softmax's of rows, times `kept` and `grow` if
    that is asked for; level = the logarithms of the sums of their exponentials, -inf of rows that
    see nothing, whose weights are 0.

    `sizes`: how many keys, rows and heads there are; whether rows see no key behind their own
    place; whether they see what is `seen` (1), or something is `added` (2); whether some is `kept`;
    and what image, head and place are multiplied with for a row's number in its mask.
    """
    if not cython.compiled:
        _attended(s, sizes, seen, added, kept, grow, level, 0, len(level))
        return
    with cython.nogil:
        _attended(
            _into(s), cython.address(sizes[0]), cython.address(seen[0]), _of(added),
            cython.address(kept[0]), grow, _into(level), 0, level.shape[0],
        )  # fmt: skip


def _attended(
    s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    one, nothing, lowest = 1.0, 0.0, -3.4028235e38
    hidden = lowest + lowest
    n = sizes[0]
    while first < last:
        stop = min(last, first + max(1, 2048 // n))  # exponentials are made of many at once
        for r in range(first, stop):
            _hide(s, sizes, seen, added, r, hidden)
            top = _top(s, r * n, n)
            level[r] = top
            _lower(s, r * n, n, lowest if top == hidden else top)
        _exps(s, first * n, (stop - first) * n, s, first * n)
        for r in range(first, stop):
            total = _sum(s, r * n, n)
            if total == nothing:
                continue
            level[r] = level[r] + log(total)
            if sizes[5] > 0:
                _thin(s, r * n, n, kept, grow / total)
            else:
                _scale(s, r * n, n, one / total)
        first = stop


def attended_back(
    s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any, scale: Any, d: Any
) -> None:
    """The scores become the weights that `attended` made of them; and d, the gradient of these, the
    gradient of the scores times `scale`.
    """
    if not cython.compiled:
        _attended_back(s, sizes, seen, added, kept, grow, level, scale, d, 0, len(level))
        return
    with cython.nogil:
        _attended_back(
            _into(s), cython.address(sizes[0]), cython.address(seen[0]), _of(added),
            cython.address(kept[0]), grow, _of(level), scale, _into(d), 0, level.shape[0],
        )  # fmt: skip


def _attended_back(
    s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any, scale: Any,
    d: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    one, nothing, lowest = 1.0, 0.0, -3.4028235e38
    hidden = lowest + lowest
    n = sizes[0]
    while first < last:
        stop = min(last, first + max(1, 2048 // n))
        for r in range(first, stop):
            _hide(s, sizes, seen, added, r, hidden)
            top = level[r]
            _lower(s, r * n, n, lowest if top == hidden else top)
        _exps(s, first * n, (stop - first) * n, s, first * n)
        if sizes[5] > 0:
            _thin(d, first * n, (stop - first) * n, kept, grow)
        for r in range(first, stop):
            total = _sum(s, r * n, n)
            each = one if total == nothing else one / total
            mean = _product(d, s, r * n, n) * each
            for k in range(r * n, r * n + n):
                d[k] = (d[k] - mean) * (s[k] * (each * scale))
            if sizes[5] > 0:
                _thin(s, r * n, n, kept, grow * each)
            else:
                _scale(s, r * n, n, each)
        first = stop


def _lower(s: Any, at: Any, n: Any, by: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] - by


def _scale(s: Any, at: Any, n: Any, by: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] * by


def _thin(s: Any, at: Any, n: Any, kept: Any, grow: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] * (kept[k] * grow)


def _hide(s: Any, sizes: Any, seen: Any, added: Any, r: Any, hidden: Any) -> None:
    """What row r doesn't see."""
    n = sizes[0]
    at = r * n
    if sizes[4] > 0:
        rows, heads = sizes[1], sizes[2]
        of = r // (heads * rows) * sizes[6] + r // rows % heads * sizes[7] + r % rows * sizes[8]
        of = of * n
        if sizes[4] == 2:
            for k in range(n):
                s[at + k] = s[at + k] + added[of + k]
        else:
            for k in range(n):
                x = s[at + k]
                s[at + k] = x if seen[of + k] else hidden
    if sizes[3] > 0:
        for k in range(r % sizes[1] + 1, n):
            s[at + k] = hidden
