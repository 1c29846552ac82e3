"""Loops over single elements, which `skimp compile` makes C of (`compiled`); the types that it
takes are in `loops.pxd`. As they stand they run on NumPy's arrays, slowly, which is how tests
compare them with what they stand for. Each operation is rounded by itself, so bits are NumPy's.
"""

from __future__ import annotations

from typing import Any

import cython

__all__ = [
    "added", "concatenate", "filled", "gru_back", "gru_shown", "kept", "lstm_back", "lstm_carried",
    "passed", "reduction", "shuffled", "stack", "stays", "summed", "topped", "ufunc", "weighed",
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


def ufunc(function: Any) -> Any:
    """A ufunc of NumPy's, whose loops are called straight where arrays are small (`bare.h`)."""
    return bare_ufunc(function) if cython.compiled else function  # type: ignore # noqa: F821


def reduction(function: Any) -> Any:
    """Its `reduce`, likewise, along one dim or all."""
    reduce = function.reduce
    return bare_reduce(function, reduce) if cython.compiled else reduce  # type: ignore # noqa: F821


def concatenate(function: Any) -> Any:
    """NumPy's `concatenate`, likewise."""
    return bare_concatenate(function) if cython.compiled else function  # type: ignore # noqa: F821


def stack(function: Any) -> Any:
    """The same of what puts arrays side by side along a new dim."""
    return bare_stack(function) if cython.compiled else function  # type: ignore # noqa: F821


def summed(x: Any, out: Any) -> None:
    """out = the sums so far along the middle dim, of doubles, each rounded."""
    for i in range(out.shape[0]):
        for k in range(out.shape[2]):
            out[i, 0, k] = x[i, 0, k]
            total = float(x[i, 0, k])
            for j in range(1, out.shape[1]):
                total += float(x[i, j, k])
                out[i, j, k] = total


def topped(x: Any, largest: Any, values: Any, places: Any) -> Any:
    """values, places = the first of each row in order, as many as there is room for, and where they
    are; ties keep their order. Whether it is done: not where one is NaN."""
    last = values.shape[1] - 1
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            one = x[r, i]
            if one != one:
                return False
            if i > last and not _beats(one, values[r, last], largest):
                continue
            at = min(i, last)
            while at > 0 and _beats(one, values[r, at - 1], largest):
                values[r, at] = values[r, at - 1]
                places[r, at] = places[r, at - 1]
                at -= 1
            values[r, at] = one
            places[r, at] = i
    return True


def _beats(one: Any, other: Any, largest: Any) -> Any:
    return one > other if largest else one < other


def shuffled(words: Any, out: Any) -> None:
    """out = what swapping i with i + words[i] % (n - i), for each in turn, makes of 0 .. n - 1."""
    n = out.shape[0]
    for i in range(n):
        out[i] = i
    for i in range(n - 1):
        left = n - i
        at = i + words[i] % left
        kept = out[i]
        out[i] = out[at]
        out[at] = kept
