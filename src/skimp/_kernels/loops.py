"""Loops over single elements, which `skimp compile` makes C of (`compiled`); the types that it
takes are in `loops.pxd`. As they stand they run on NumPy's arrays, slowly, which is how tests
compare them with what they stand for. Each operation is rounded by itself, so bits are
NumPy's, but where sums are in lanes.
"""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:
    from math import sqrt as root

__all__ = [
    "added", "filled", "gru_back", "gru_shown", "kept", "lstm_back", "lstm_carried", "normed",
    "normed_back", "passed", "pooled", "pooled_back", "stays", "summed", "weighed",
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


# -- channels of images: rows of places, those of an image one after the other ---------------------


def summed(x: Any, y: Any, sums: Any) -> None:
    """sums = the sum of each row of x, and that of its products with y's, in double."""
    with cython.nogil:
        for r in range(x.shape[0]):
            total, product = _norm_sums(x, y, r)
            sums[0, r] = total
            sums[1, r] = product


def normed(
    x: Any, weight: Any, bias: Any, eps: Any, means: Any, variances: Any, kept: Any, moved: Any,
    sample: Any, moments: Any, mean: Any, rstd: Any, slopes: Any, shifts: Any, out: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    """moments = mean and variance of channels of x, from the `first` to the `last`, of which `mean`
    is the former, too, `rstd` one over the deviation, and `slopes` and `shifts` the (a, b) of
    x * a + b; out = that. Of running `means` and `variances` so much is `kept`, and added of the
    moments of a `sample`, so many times as large. None of what is None."""
    with cython.nogil:
        _normed(
            x, weight, bias, eps, means, variances, kept, moved, sample, moments, mean, rstd,
            slopes, shifts, out, first, last,
        )  # fmt: skip


def _normed(
    x: Any, weight: Any, bias: Any, eps: Any, means: Any, variances: Any, kept: Any, moved: Any,
    sample: Any, moments: Any, mean: Any, rstd: Any, slopes: Any, shifts: Any, out: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    """Of these channels."""
    channels = mean.shape[0]
    images = x.shape[0] // channels
    many = images * x.shape[1]
    for c in range(first, last):
        total = square = 0.0
        for i in range(images):
            one, other = _norm_sums(x, x, i * channels + c)
            total += one
            square += other
        middle = total / many
        var = square / many - middle * middle
        var = 0.0 if var < 0.0 else var
        scale = 1.0 / root(var + eps)
        moments[0, c] = middle
        moments[1, c] = var
        mean[c] = middle
        rstd[c] = scale
        if weight is not None:
            scale = scale * float(weight[c])
        shift = middle * scale
        shift = -shift if bias is None else float(bias[c]) - shift
        slopes[c] = scale
        shifts[c] = shift
        if means is not None:
            means[c] = means[c] * kept + mean[c] * moved
            new = var * sample
            variances[c] = variances[c] * kept + new * moved
        if out is not None:
            for i in range(images):
                _norm_line(x, i * channels + c, scale, shift, out)


def _norm_line(x: Any, r: Any, a: Any, b: Any, out: Any) -> None:
    for k in range(x.shape[1]):
        out[r, k] = x[r, k] * a + b


def normed_back(
    g: Any, x: Any, seen: Any, slopes: Any, shifts: Any, low: Any, high: Any, mean: Any, rstd: Any,
    weight: Any, given: Any, dw: Any, db: Any, out: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """out = the gradient of what `normed` has read, from that of its result; dw, db = those of
    weight and bias. Of the former what passes (`passed`) by seen * slope + shift, with numbers for
    each channel, if `seen` is given. `given`: mean and deviation were not x's own."""
    with cython.nogil:
        _normed_back(
            g, x, seen, slopes, shifts, low, high, mean, rstd, weight, given, dw, db, out, first,
            last,
        )  # fmt: skip


def _normed_back(
    g: Any, x: Any, seen: Any, slopes: Any, shifts: Any, low: Any, high: Any, mean: Any, rstd: Any,
    weight: Any, given: Any, dw: Any, db: Any, out: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Of these channels."""
    channels = mean.shape[0]
    images = x.shape[0] // channels
    many = images * x.shape[1]
    for c in range(first, last):
        total = product = 0.0
        for i in range(images):
            r = i * channels + c
            if seen is None:
                one, other = _norm_sums(g, x, r)
            else:
                _norm_gate(g, seen, r, slopes[c], shifts[c], low, high, out)
                one, other = _norm_sums(out, x, r)
            total += one
            product += other
        scale, middle = float(rstd[c]), float(mean[c])
        grad = (product - middle * total) * scale
        dw[c] = grad
        db[c] = total
        a = scale if weight is None else scale * float(weight[c])
        share = a / -many
        b = grad * scale * share
        shift = total * share - middle * b
        for i in range(images):
            r = i * channels + c
            if seen is None:
                _norm_blend(g, x, r, a, b, shift, given, out)
            else:
                _norm_blend(out, x, r, a, b, shift, given, out)


def _norm_blend(g: Any, x: Any, r: Any, a: Any, b: Any, c: Any, given: Any, out: Any) -> None:
    if given:
        for k in range(x.shape[1]):
            out[r, k] = g[r, k] * a
    else:
        for k in range(x.shape[1]):
            out[r, k] = (x[r, k] * b + c) + g[r, k] * a


def _norm_gate(g: Any, seen: Any, r: Any, a: Any, b: Any, low: Any, high: Any, out: Any) -> None:
    for k in range(g.shape[1]):
        own, line = g[r, k], seen[r, k] * a + b
        out[r, k] = 0 if (line <= low) | (line >= high) else own


def _norm_sums(x: Any, y: Any, r: Any) -> Any:
    """Of a row, a part after the other."""
    total = product = 0.0
    for start in range(0, x.shape[1], 1024):
        one, other = _norm_part(x, y, r, start, min(1024, x.shape[1] - start))
        total += one
        product += other
    return total, product


def _norm_part(x: Any, y: Any, r: Any, start: Any, count: Any) -> Any:
    """In 16 lanes, whose bits no width of vectors changes."""
    totals = [0.0] * 16
    products = [0.0] * 16
    whole = count // 16 * 16
    for i in range(start, start + whole, 16):
        for k in range(16):
            one = float(x[r, i + k])
            totals[k] += one
            products[k] += one * float(y[r, i + k])
    for k in range(count - whole):
        one = float(x[r, start + whole + k])
        totals[k] += one
        products[k] += one * float(y[r, start + whole + k])
    for k in range(8):
        totals[k] += totals[k + 8]
        products[k] += products[k + 8]
    for k in range(4):
        totals[k] += totals[k + 4]
        products[k] += products[k + 4]
    total = (totals[0] + totals[2]) + (totals[1] + totals[3])
    return total, (products[0] + products[2]) + (products[1] + products[3])


# -- maxima of windows of two by two, which lie side by side in planes -----------------------------


def pooled(x: Any, out: Any, taps: Any) -> None:
    """out = the largest of each window; taps = which it is, the first of equals, the last NaN."""
    with cython.nogil:
        for p in range(out.shape[0]):
            _pool_plane(x, out, taps, p)


def _pool_plane(x: Any, out: Any, taps: Any, p: Any) -> None:
    for i in range(out.shape[1]):
        for k in range(out.shape[2]):
            top = x[p, 2 * i, 2 * k]
            at = 0
            one = x[p, 2 * i, 2 * k + 1]
            at = 1 if (one > top) | (one != one) else at
            top = one if (one > top) | (one != one) else top
            one = x[p, 2 * i + 1, 2 * k]
            at = 2 if (one > top) | (one != one) else at
            top = one if (one > top) | (one != one) else top
            one = x[p, 2 * i + 1, 2 * k + 1]
            at = 3 if (one > top) | (one != one) else at
            top = one if (one > top) | (one != one) else top
            out[p, i, k] = top
            taps[p, i, k] = at


def pooled_back(g: Any, taps: Any, out: Any) -> None:
    """out = each window's g, where its tap lies."""
    with cython.nogil:
        for p in range(g.shape[0]):
            for i in range(g.shape[1]):
                _pool_spread(g, taps, out, p, i, 0)
                _pool_spread(g, taps, out, p, i, 1)


def _pool_spread(g: Any, taps: Any, out: Any, p: Any, i: Any, lower: Any) -> None:
    for k in range(g.shape[2]):
        own, tap = g[p, i, k], taps[p, i, k] - 2 * lower
        one = own if tap == 0 else 0
        other = own if tap == 1 else 0
        out[p, 2 * i + lower, 2 * k] = one
        out[p, 2 * i + lower, 2 * k + 1] = other


# -- sums of columns -------------------------------------------------------------------------------


def columns(x: Any, room: Any, out: Any) -> None:
    """out = the sums of the columns of each matrix, of four rows each in double, in `room`."""
    with cython.nogil:
        for p in range(x.shape[0]):
            for first in range(0, x.shape[2], 512):
                last = min(first + 512, x.shape[2])
                _column_sums(x, p, first, last, room)
                for k in range(first, last):
                    out[p, k] = room[k - first]


def _column_sums(x: Any, p: Any, first: Any, last: Any, room: Any) -> None:
    for k in range(last - first):
        room[k] = 0
    whole = x.shape[1] // 4 * 4
    for i in range(0, whole, 4):
        for k in range(last - first):
            one = x[p, i, first + k] + x[p, i + 1, first + k]
            other = x[p, i + 2, first + k] + x[p, i + 3, first + k]
            room[k] += float(one + other)
    for i in range(whole, x.shape[1]):
        for k in range(last - first):
            room[k] += float(x[p, i, first + k])
