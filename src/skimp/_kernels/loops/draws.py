"""Random numbers: mt19937's words, what dropout keeps, and permutations.

`state` is mt19937's 624 words and how many of them are drawn. Of several threads each goes through
all words up to its range's end, for none comes without those before it, and tempers those of its
range, which takes as long again; so the first ranges are the longest.
"""

from __future__ import annotations

from typing import Any

from cython.parallel import prange

from skimp._kernels.loops.arithmetic import (
    _MASK,
    _MATRIX,
    _OTHER_MASK,
    _behind,
    _bits,
    _released,
    _room,
    rows_new_places,
    rows_places,
    rows_size,
    rows_words,
)


def words(state: Any, out: Any) -> Any:
    """out = the next words; out."""
    view = out
    _words(_bits(state), _bits(view), 0, view.shape[0])
    return out


def stays(state: Any, out: Any, high: Any, low: Any, threads: Any) -> None:
    """out = whether pairs of the next words, each of 53 bits, the first word's first, are below
    those of (high, low), by so many threads."""
    n, key = out.shape[0], _bits(state)
    if threads < 2:
        _stays(key, out, 0, n, high, low)
        return
    room = _room(threads * 625)
    try:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _passed_to(key, _behind(room, t * 625), 2 * _begin(n, t, threads))
            _stays(
                _behind(room, t * 625), out, _begin(n, t, threads), _begin(n, t + 1, threads),
                high, low,
            )  # fmt: skip
        _copied(_behind(room, (threads - 1) * 625), key)
    finally:
        _released(room)


def _begin(n: Any, t: Any, threads: Any) -> Any:
    """Where the t-th thread's range begins: each is half as long as the one before it."""
    if t == threads:  # of many threads the quotient below may be less than n
        return n
    return int(n * (1 - 0.5**t) / (1 - 0.5**threads))


def _copied(key: Any, to: Any) -> None:
    for i in range(625):
        to[i] = key[i]


def _passed_to(key: Any, to: Any, count: Any) -> None:
    """`to` = the state after so many more words."""
    _copied(key, to)
    at = to[624] + count
    while at > 624:
        _twist(to)
        at -= 624
    to[624] = at


def _words(key: Any, out: Any, first: Any, last: Any) -> None:
    at, done = key[624], first
    while done < last:
        if at == 624:
            _twist(key)
            at = 0
        count = min(last - done, 624 - at)
        for i in range(count):
            out[done + i] = _tempered(key[at + i])
        at += count
        done += count
    key[624] = at


def _stays(key: Any, out: Any, first: Any, last: Any, high: Any, low: Any) -> None:
    at, done = key[624], first
    while done < last:
        if at == 624:
            _twist(key)
            at = 0
        if at < 623:
            count = min(last - done, (624 - at) // 2)
            if _meet(key, at, out, done, count, high):  # of two million pairs one
                for i in range(count):
                    y, z = key[at + 2 * i], key[at + 2 * i + 1]
                    out[done + i] = _below(_tempered(y), _tempered(z), high, low)
            at += 2 * count
        else:
            y = key[623]
            _twist(key)
            out[done] = _below(_tempered(y), _tempered(key[0]), high, low)
            count, at = 1, 1
        done += count
    key[624] = at


def _meet(key: Any, at: Any, out: Any, to: Any, count: Any, high: Any) -> Any:
    """out = whether pairs are below by their first words; whether one is decided by its second."""
    met = 0
    for i in range(count):
        y = _tempered(key[at + 2 * i]) & 0x1FFFFF
        out[to + i] = y < high
        met |= y == high
    return met


def _below(first: Any, second: Any, high: Any, low: Any) -> Any:
    y = first & 0x1FFFFF
    return (y < high) | ((y == high) & (second < low))


def _twist(key: Any) -> None:
    """The next 624 of mt19937's numbers (Matsumoto and Nishimura 1998)."""
    for i in range(227):
        key[i] = key[i + 397] ^ _mixed(key[i], key[i + 1])
    for i in range(227, 623):
        key[i] = key[i - 227] ^ _mixed(key[i], key[i + 1])
    key[623] = key[396] ^ _mixed(key[623], key[0])


def _mixed(upper: Any, lower: Any) -> Any:
    y = (upper >> 31 << 31) | (lower & 0x7FFFFFFF)
    return (y >> 1) ^ (_MATRIX if y & 1 else 0)


def _tempered(y: Any) -> Any:
    y = y ^ (y >> 11)
    y = y ^ ((y << 7) & _MASK)
    y = y ^ ((y << 15) & _OTHER_MASK)
    return y ^ (y >> 18)


def shuffled(words: Any) -> Any:
    """What swapping i with i + words[i] % (n - i), for each in turn, makes of 0 to n - 1, as a new
    array; n is one more than there are words."""
    n = rows_size(words) + 1
    given, out = rows_words(words, 0, n - 1), rows_new_places(n)
    to = rows_places(out)
    for i in range(n):
        to[i] = i
    for i in range(n - 1):
        left = n - i
        at = i + given[i] % left
        kept = to[i]
        to[i] = to[at]
        to[at] = kept
    return out


def between(words: Any, at: Any, n: Any, low: Any, span: Any) -> Any:
    """low + word % span, of so many words from `at` on, as a new array."""
    given, out = rows_words(words, at, n), rows_new_places(n)
    to = rows_places(out)
    for i in range(n):
        to[i] = given[i] % span
    for i in range(n):
        to[i] += low
    return out
