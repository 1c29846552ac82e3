"""Sums, products and the largest of rows, and sums of columns, whose bits are up to that row, or
column, alone.

Arrays lie flat, rows of n one after the other. Sums and the largest are of 32 lanes, and of 8
where less than 32 are left; rows are cut at 2,048, and what pieces sum up to is added in double.
"""

from __future__ import annotations

from typing import Any

import cython


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
