"""Sums, products and the largest of rows, and sums of columns, whose bits are up to that row, or
column, alone.

Arrays lie flat, rows of n one after the other. Sums and the largest are of 32 lanes, and of 8
where less than 32 are left; rows are cut at 2,048, and what pieces sum up to is added in double.
"""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import (
    _doubles,
    _into,
    _lacks,
    _of,
    rows_aligned,
    rows_floats,
    rows_kept,
    rows_new,
    rows_size,
)
from skimp._kernels.loops.ufuncs import stepped


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


def _sum_of_few(x: Any, at: Any, n: Any) -> Any:
    """`_piece_of_sum` of less than 32."""
    rest = 0.0
    lanes = [rest] * 8
    stop = at + n
    while stop - at >= 8:
        for j in range(8):
            lanes[j] += x[at + j]
        at += 8
    while at < stop:
        rest += x[at]
        at += 1
    return _joined(lanes) + rest if n >= 8 else rest


def _piece_of_sum(x: Any, at: Any, n: Any) -> Any:
    if n < 32:
        return _sum_of_few(x, at, n)
    rest = 0.0
    lanes = [rest] * 32
    stop = at + n
    while stop - at >= 32:
        for j in range(32):
            lanes[j] += x[at + j]
        at += 32
    _join(lanes)
    while stop - at >= 8:
        for j in range(8):
            lanes[j] += x[at + j]
        at += 8
    while at < stop:
        rest += x[at]
        at += 1
    return _joined(lanes) + rest


def _squares(x: Any, at: Any, n: Any, middle: Any) -> Any:
    """The sum of a row's squared distances from a number."""
    found = 0.0
    while n > 2048:
        found += _piece_of_squares(x, at, 2048, middle)
        at += 2048
        n -= 2048
    return found + _piece_of_squares(x, at, n, middle)


def _piece_of_squares(x: Any, at: Any, n: Any, middle: Any) -> Any:
    rest = 0.0
    lanes = [rest] * 32
    stop = at + n
    while stop - at >= 32:
        for j in range(32):
            lanes[j] += (x[at + j] - middle) * (x[at + j] - middle)
        at += 32
    if n >= 32:
        _join(lanes)
    while stop - at >= 8:
        for j in range(8):
            lanes[j] += (x[at + j] - middle) * (x[at + j] - middle)
        at += 8
    while at < stop:
        rest += (x[at] - middle) * (x[at] - middle)
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


def totals(x: Any, kept: Any, ones: Any) -> Any:
    """The sums of an array's rows, which all dims behind the first `kept` are, as a new array of
    these, and so many dims of size 1."""
    x = rows_aligned(x)
    made = rows_kept(x, kept, ones)
    rows, whole = rows_size(made), rows_size(x)
    _row_sums(rows_floats(x), whole // rows, rows_floats(made), 0, rows)
    return made


def squares(x: Any, middles: Any, kept: Any, ones: Any) -> Any:
    """The same of squared distances from a number for each row, or from 0."""
    x = rows_aligned(x)
    made = rows_kept(x, kept, ones)
    rows, whole = rows_size(made), rows_size(x)
    _row_squares(rows_floats(x), whole // rows, _of(middles), rows_floats(made), 0, rows)
    return made


def shared_totals(
    x: Any, kept: Any, ones: Any, unit: Any, square: Any, middles: Any, threads: Any
) -> Any:
    """`totals`, or `squares`, by so many threads; of each `unit` elements of rows that are longer,
    as one row, if that is not 0: a multiple of 2,048."""
    x = rows_aligned(x)
    made = rows_kept(x, kept, ones)
    rows = rows_size(made)
    n = rows_size(x) // rows
    if unit and unit < n:
        made = rows_new(rows * ((n + unit - 1) // unit))
    else:
        unit = n
    pieces = (n + 2047) // 2048
    parts = rows * pieces
    room = rows_new(parts) if rows_size(made) < parts else made
    read, into, sums = rows_floats(x), rows_floats(room), rows_floats(made)
    back = False
    if cython.compiled:
        back = pieces > 1 and turns_back(4 * rows * n, threads)  # type: ignore[name-defined] # noqa: F821
    if threads > 1:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _sums_of_pieces(
                read, n, square, _of(middles), pieces, into, t * parts // threads,
                (t + 1) * parts // threads, back,
            )  # fmt: skip
        _join_pieces(into, rows, n, pieces, unit, sums)
    elif back or unit < n:
        with cython.nogil:
            _sums_of_pieces(read, n, square, _of(middles), pieces, into, 0, parts, back)
            _join_pieces(into, rows, n, pieces, unit, sums)
    elif square:
        with cython.nogil:
            _row_squares(read, n, _of(middles), sums, 0, rows)
    else:
        with cython.nogil:
            _row_sums(read, n, sums, 0, rows)
    return made


def passed_totals(
    steps: Any, operands: Any, registers: Any, summed: Any, rows: Any, n: Any, unit: Any,
    square: Any, threads: Any,
) -> Any:  # fmt: skip
    """`shared_totals` of rows of n that steps make (`ufuncs.ran`), of which each block is added up
    in its register, one of the operands from `registers` on. None where types or layouts are none
    of these."""
    if not unit or unit > n:
        unit = n
    pieces = (n + 2047) // 2048
    made = rows_new(rows * ((n + unit - 1) // unit))
    room = rows_new(rows * pieces)
    into = rows_floats(room)
    if cython.compiled:
        add = _piece_of_own_squares if square else _piece_of_sum
        if not passes_summed(  # type: ignore[name-defined] # noqa: F821
            steps, operands, rows, n, 2048, registers, summed, into, threads, add
        ):
            return None
    else:
        for p in range(rows * pieces):
            at = p % pieces * 2048
            first = p // pieces * n + at
            last = first + min(2048, n - at)
            block = stepped(steps, operands, registers, len(operands), first, last)[summed]
            add = _piece_of_own_squares if square else _piece_of_sum
            into[p] = add(block, 0, len(block))
    _join_pieces(into, rows, n, pieces, unit, rows_floats(made))
    return made


def _piece_of_own_squares(x: Any, at: Any, n: Any) -> Any:
    return _piece_of_squares(x, at, n, 0)


def _row_sums(x: Any, n: Any, out: Any, first: Any, last: Any) -> None:
    for r in range(first, last):
        out[r] = _sum(x, r * n, n)


def _row_squares(x: Any, n: Any, middles: Any, out: Any, first: Any, last: Any) -> None:
    for r in range(first, last):
        out[r] = _squares(x, r * n, n, 0 if _lacks(middles) else middles[r])


def _sums_of_pieces(
    x: Any, n: Any, square: Any, middles: Any, pieces: Any, room: Any, first: Any, last: Any,
    back: Any,
) -> None:  # fmt: skip
    for k in range(first, last):
        p = first + last - 1 - k if back else k
        r = p // pieces
        at = p % pieces * 2048
        count = min(2048, n - at)
        if square:
            middle = 0 if _lacks(middles) else middles[r]
            room[p] = _piece_of_squares(x, r * n + at, count, middle)
        else:
            room[p] = _piece_of_sum(x, r * n + at, count)


def _join_pieces(room: Any, rows: Any, n: Any, pieces: Any, unit: Any, out: Any) -> None:
    """out = the sums of each unit of rows, whose pieces' are in `room`."""
    units = (n + unit - 1) // unit
    each = (unit + 2047) // 2048
    for r in range(rows):
        for u in range(units):
            count = min(each, pieces - u * each)
            out[r * units + u] = _sum_of_pieces(room, r * pieces + u * each, count)


def _sum_of_pieces(room: Any, at: Any, pieces: Any) -> Any:
    found = 0.0
    for p in range(at, at + pieces):
        found += float(room[p])
    return found


def columns(x: Any, rows: Any, n: Any, step: Any, room: Any, out: Any, threads: Any) -> None:
    """out = the sums of the columns of each matrix (rows, n), added up over each `step` rows in a
    row of `room`, and then over these."""
    pieces = (rows + step - 1) // step
    count = out.shape[0] // n
    parts = count * pieces
    if threads > 1:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _column_sums(
                _of(x), rows, n, step, pieces, _doubles(room), t * parts // threads,
                (t + 1) * parts // threads,
            )  # fmt: skip
    else:
        with cython.nogil:
            _column_sums(_of(x), rows, n, step, pieces, _doubles(room), 0, parts)
    for p in range(count):
        _add_rows(_doubles(room), p * pieces * n, pieces, n, _into(out), p * n)


def _column_sums(
    x: Any, rows: Any, n: Any, step: Any, pieces: Any, room: Any, part: Any, stop: Any
) -> None:
    """Of eight rows, and those in double; of so many columns at once as the cache holds."""
    for p in range(part, stop):
        first = p % pieces * step
        last = min(first + step, rows)
        for left in range(0, n, 512):
            start = (p // pieces * rows + first) * n + left
            _columns_of_piece(x, start, last - first, n, min(512, n - left), room, p * n + left)


def _columns_of_piece(x: Any, at: Any, rows: Any, n: Any, width: Any, room: Any, to: Any) -> None:
    for k in range(width):
        room[to + k] = 0
    while rows >= 8:
        for k in range(width):
            one = (x[at + k] + x[at + n + k]) + (x[at + 2 * n + k] + x[at + 3 * n + k])
            other = x[at + 4 * n + k] + x[at + 5 * n + k]
            other += x[at + 6 * n + k] + x[at + 7 * n + k]
            room[to + k] += float(one + other)
        at += 8 * n
        rows -= 8
    while rows > 0:
        for k in range(width):
            room[to + k] += float(x[at + k])
        at += n
        rows -= 1


def _add_rows(room: Any, at: Any, rows: Any, n: Any, out: Any, to: Any) -> None:
    """out = the sums of columns in double; the first row becomes these."""
    for r in range(1, rows):
        for k in range(n):
            room[at + k] += room[at + r * n + k]
    for k in range(n):
        out[to + k] = room[at + k]
