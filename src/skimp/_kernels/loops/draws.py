"""Random numbers: what dropout keeps, and permutations."""

from __future__ import annotations

from typing import Any


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


def shuffled(words: Any, out: Any) -> None:
    """out = what swapping i with i + words[i] % (n - i), for each in turn, makes of 0 to n - 1."""
    n = out.shape[0]
    for i in range(n):
        out[i] = i
    for i in range(n - 1):
        left = n - i
        at = i + words[i] % left
        kept = out[i]
        out[i] = out[at]
        out[at] = kept
