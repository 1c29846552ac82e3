"""Maxima of windows."""

from __future__ import annotations

from typing import Any

import cython


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
