"""Exponentials of rows."""

from __future__ import annotations

from typing import Any

import cython

from skimp._kernels.loops.arithmetic import _fused, float32, ldexp
from skimp._kernels.loops.sums import _piece_of_sum

if not cython.compiled:

    def exponentials_made(x: Any, at: Any, n: Any, out: Any, to: Any) -> Any:
        """Whether the processor's vectors have made them (`exponentials.h`)."""
        return False


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
    """out = exp(x), in whose memory it may be; 0 below the least normal number."""
    if exponentials_made(x, at, n, out, to):
        return
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
