"""float32 to half precision, and back."""

from __future__ import annotations

from typing import Any

import cython


def halved(x: Any, out: Any) -> None:
    """out = the bits of float16 next to float32 of bits `x`; of two as near, the even one."""
    least, most, infinite, fewest, digits = 0x38800000, 0x7C00, 0x7F800000, 95, 125
    with cython.nogil:
        for i in range(out.shape[0]):
            u = x[i] & 0x7FFFFFFF
            normal = u if u > least else least
            normal = ((normal + 0xFFF + ((normal >> 13) & 1)) >> 13) - 0x1C000
            normal = normal if normal < most else most
            e = u >> 23
            e = e if e > fewest else fewest
            cut = 126 - (e if e < digits else digits)  # digits below the last of a small number
            m = (u & 0x7FFFFF) | 0x800000
            small = (m + (1 << (cut - 1)) - 1 + ((m >> cut) & 1)) >> cut
            near = normal if u >= least else small
            nan = 0x7E00 | ((u >> 13) & 0x3FF)
            near = nan if u > infinite else near
            out[i] = ((x[i] >> 16) & 0x8000) | near


def widened(x: Any, bits: Any, out: Any) -> None:
    """out = float32 of float16's bits `x`; `bits` are those of `out`."""
    with cython.nogil:
        for first in range(0, out.shape[0], 1024):
            _widened(x, bits, out, first, min(first + 1024, out.shape[0]))


def _widened(x: Any, bits: Any, out: Any, first: Any, last: Any) -> None:
    low, none, top = 2.0**-14, 0.0, 0x70000000
    normal, small = 0x38000000, 0x38800000
    for i in range(first, last):
        bits[i] = x[i]
    for i in range(first, last):
        u = bits[i] & 0x7FFF
        more = normal if u >= 0x400 else small  # whose least exponent is taken again below
        more = top if u >= 0x7C00 else more
        bits[i] = (u << 13) + more
    for i in range(first, last):
        v = out[i] - (low if x[i] & 0x7C00 == 0 else none)
        out[i] = -v if x[i] & 0x8000 else v


def brain_halved(x: Any, out: Any) -> None:
    """`halved`, of bfloat16; of each sign there is one NaN."""
    infinite, nan = 0x7F800000, 0x7FC0
    with cython.nogil:
        for i in range(out.shape[0]):
            u = x[i] & 0x7FFFFFFF
            near = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
            near = near if u <= infinite else nan
            out[i] = ((x[i] >> 16) & 0x8000) | near
