"""float32 to half precision, and back; float16 by the processor's own conversions where it has
them, which give the same bits."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange


def halved(x: Any, out: Any, threads: Any) -> None:
    """out = the bits of float16 next to float32 of bits `x`, by so many threads; of two as near,
    the even one."""
    n = out.shape[0]
    if threads < 2:
        with cython.nogil:
            _halved(x, out, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _halved(x, out, t * n // threads, (t + 1) * n // threads)


def _halved(x: Any, out: Any, first: Any, last: Any) -> None:
    least, most, infinite, fewest, digits = 0x38800000, 0x7C00, 0x7F800000, 95, 125
    if cython.compiled:
        first = halves_converted(cython.address(x[0]), cython.address(out[0]), first, last)  # type: ignore[name-defined] # noqa: F821
    for i in range(first, last):
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


def widened(x: Any, bits: Any, out: Any, threads: Any) -> None:
    """out = float32 of float16's bits `x`, by so many threads; `bits` are those of `out`."""
    n = out.shape[0]
    if threads < 2:
        with cython.nogil:
            _widened(x, bits, out, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _widened(x, bits, out, t * n // threads, (t + 1) * n // threads)


def _widened(x: Any, bits: Any, out: Any, first: Any, last: Any) -> None:
    if cython.compiled:
        first = halves_widened(cython.address(x[0]), cython.address(out[0]), first, last)  # type: ignore[name-defined] # noqa: F821
    for start in range(first, last, 1024):
        _widened_block(x, bits, out, start, min(start + 1024, last))


def _widened_block(x: Any, bits: Any, out: Any, first: Any, last: Any) -> None:
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


def brain_halved(x: Any, out: Any, threads: Any) -> None:
    """`halved`, of bfloat16; of each sign there is one NaN."""
    n = out.shape[0]
    if threads < 2:
        with cython.nogil:
            _brain_halved(x, out, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _brain_halved(x, out, t * n // threads, (t + 1) * n // threads)


def _brain_halved(x: Any, out: Any, first: Any, last: Any) -> None:
    infinite, nan = 0x7F800000, 0x7FC0
    for i in range(first, last):
        u = x[i] & 0x7FFFFFFF
        near = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
        near = near if u <= infinite else nan
        out[i] = ((x[i] >> 16) & 0x8000) | near
