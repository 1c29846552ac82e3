"""What masks keep, rectifiers let pass, and masked fills."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange


def kept(x: Any, stays: Any, scale: Any, out: Any, threads: Any) -> None:
    """out = x * (stays * scale), by so many threads"""
    n = out.shape[0]
    if threads < 2:
        _kept(x, stays, scale, out, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _kept(x, stays, scale, out, t * n // threads, (t + 1) * n // threads)


def _kept(x: Any, stays: Any, scale: Any, out: Any, first: Any, last: Any) -> None:
    for i in range(first, last):
        out[i] = x[i] * (stays[i] * scale)


def passed(g: Any, x: Any, low: Any, high: Any, out: Any, threads: Any) -> None:
    """out = g where x is between the limits or NaN, else 0, by so many threads; NaN as a limit is
    none."""
    n = out.shape[0]
    if threads < 2:
        _passed(g, x, low, high, out, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _passed(g, x, low, high, out, t * n // threads, (t + 1) * n // threads)


def _passed(g: Any, x: Any, low: Any, high: Any, out: Any, first: Any, last: Any) -> None:
    for i in range(first, last):
        out[i] = 0 if (x[i] <= low) | (x[i] >= high) else g[i]


def held(x: Any, low: Any, high: Any, out: Any, threads: Any) -> None:
    """out = x held between two numbers, NaN as it is, by so many threads."""
    n = out.shape[0]
    if threads < 2:
        with cython.nogil:
            _held(x, low, high, out, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _held(x, low, high, out, t * n // threads, (t + 1) * n // threads)


def _held(x: Any, low: Any, high: Any, out: Any, first: Any, last: Any) -> None:
    for i in range(first, last):
        one = x[i]
        one = low if one < low else one
        out[i] = high if one > high else one


def filled(mask: Any, value: Any, x: Any, out: Any, threads: Any) -> None:
    """out = value where the mask is set, else x, of as many rows as are repeated of the mask, by so
    many threads."""
    n = out.shape[1]
    if threads < 2:
        _filled(mask, value, x, out, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _filled(mask, value, x, out, t * n // threads, (t + 1) * n // threads)


def _filled(mask: Any, value: Any, x: Any, out: Any, first: Any, last: Any) -> None:
    for r in range(out.shape[0]):
        for k in range(first, last):
            out[r, k] = value if mask[k] else x[r, k]


def cleared(out: Any, threads: Any) -> None:
    """All bytes become 0, by so many threads."""
    n = out.shape[0]
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _cleared_from(out, t * n // threads, (t + 1) * n // threads)


def _cleared_from(out: Any, first: Any, last: Any) -> None:
    for i in range(first, last):  # the C library's function for it, which reads nothing
        out[i] = 0
