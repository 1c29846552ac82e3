"""Layer norm and RMS norm of rows; sums are in lanes."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import (
    _doubles,
    _into,
    _of,
    rows_floats,
    rows_is_row,
    rows_is_size,
    rows_like,
    rows_per_row,
    rows_row,
    rows_size,
    rows_width,
    sqrt,
)
from skimp._kernels.loops.sums import _add_rows, _join, _joined, _squares, _sum


def normalized(
    x: Any, w: Any, b: Any, n: Any, eps: Any, centre: Any, mean: Any, rstd: Any, out: Any,
    threads: Any,
) -> None:  # fmt: skip
    """out = each row of x, which lies elsewhere, less its mean if rows are to `centre`, over its
    deviation, times w, plus b, if these are not None; with the means and one over deviations."""
    how = 4 * centre + 2 * (w is not None) + (b is not None)
    rows = rstd.shape[0]
    if threads > 1:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _normalized(
                _of(x), _of(w), _of(b), n, eps, how, _into(mean), _into(rstd), _into(out),
                t * rows // threads, (t + 1) * rows // threads,
            )  # fmt: skip
    elif out.shape[0] < 8192:
        _normalized(
            _of(x), _of(w), _of(b), n, eps, how, _into(mean), _into(rstd), _into(out), 0, rows
        )
    else:
        with cython.nogil:
            _normalized(
                _of(x), _of(w), _of(b), n, eps, how, _into(mean), _into(rstd), _into(out), 0, rows
            )


def normalized_again(
    x: Any, w: Any, b: Any, n: Any, centre: Any, mean: Any, rstd: Any, out: Any, threads: Any
) -> None:
    """What `normalized` has made of x, by the means and one over deviations that it gave."""
    how = 8 + 4 * centre + 2 * (w is not None) + (b is not None)
    rows = rstd.shape[0]
    if threads > 1:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _normalized(
                _of(x), _of(w), _of(b), n, 0, how, _into(mean), _into(rstd), _into(out),
                t * rows // threads, (t + 1) * rows // threads,
            )  # fmt: skip
    else:
        with cython.nogil:
            _normalized(
                _of(x), _of(w), _of(b), n, 0, how, _into(mean), _into(rstd), _into(out), 0, rows
            )


def made_normalized(x: Any, shape: Any, w: Any, b: Any, eps: Any, centre: Any) -> Any:
    """(rows, means, one over deviations) of small rows of this shape, as new arrays, of
    statistics with 1 as the last size, and without means unless rows are to `centre`; None of
    any other."""
    n = rows_width(x, -1)
    if n == 0 or not (rows_is_size(shape, n) and rows_is_row(w, n) and rows_is_row(b, n)):
        return None
    out, rstd = rows_like(x), rows_per_row(x)
    mean = rows_per_row(x) if centre else rstd
    how = 4 * centre + 2 * (w is not None) + (b is not None)
    _normalized(
        rows_floats(x), rows_row(w), rows_row(b), n, eps, how, rows_floats(mean),
        rows_floats(rstd), rows_floats(out), 0, rows_size(rstd),
    )  # fmt: skip
    return (out, mean, rstd) if centre else (out, rstd)


def _normalized(
    x: Any, w: Any, b: Any, n: Any, eps: Any, how: Any, mean: Any, rstd: Any, out: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    one, size = 1.0, n
    for r in range(first, last):
        at = r * n
        middle = 0
        if how & 8:
            if how & 4:
                middle = mean[r]
            scale = rstd[r]
        else:
            if how & 4:
                middle = _sum(x, at, n) / size
                mean[r] = middle
            scale = one / sqrt(_squares(x, at, n, middle) / size + eps)
            rstd[r] = scale
        if how & 3 == 3:
            for k in range(n):
                out[at + k] = (x[at + k] - middle) * scale * w[k] + b[k]
        elif how & 2:
            for k in range(n):
                out[at + k] = (x[at + k] - middle) * scale * w[k]
        else:
            for k in range(n):
                out[at + k] = (x[at + k] - middle) * scale
            if how & 1:
                for k in range(n):
                    out[at + k] = out[at + k] + b[k]


def normalized_back(
    g: Any, x: Any, mean: Any, rstd: Any, w: Any, n: Any, centre: Any, out: Any, step: Any,
    room: Any, near: Any, sums: Any, threads: Any,
) -> None:  # fmt: skip
    """out = the gradient of `normalized`'s x, elsewhere; and sums = those of w and b, added up over
    each `step` rows in a row of `room`, and then over these, unless there is no room. Of 16 rows
    they are `near`."""
    rows = rstd.shape[0]
    pieces = (rows + step - 1) // step
    affine = room.shape[0] > 0
    if threads > 1:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _normalized_back(
                _of(g), _of(x), _of(mean), _of(rstd), _of(w), n, centre, affine, _into(out), step,
                _doubles(room), _into(near), rows, t * pieces // threads,
                (t + 1) * pieces // threads,
            )  # fmt: skip
    elif out.shape[0] < 8192:
        _normalized_back(
            _of(g), _of(x), _of(mean), _of(rstd), _of(w), n, centre, affine, _into(out), step,
            _doubles(room), _into(near), rows, 0, pieces,
        )  # fmt: skip
    else:
        with cython.nogil:
            _normalized_back(
                _of(g), _of(x), _of(mean), _of(rstd), _of(w), n, centre, affine, _into(out), step,
                _doubles(room), _into(near), rows, 0, pieces,
            )  # fmt: skip
    if affine:
        _add_rows(_doubles(room), 0, pieces, 2 * n, _into(sums), 0)


def _normalized_back(
    g: Any, x: Any, mean: Any, rstd: Any, w: Any, n: Any, centre: Any, affine: Any, out: Any,
    step: Any, room: Any, near: Any, rows: Any, piece: Any, stop: Any,
) -> None:  # fmt: skip
    size = n
    sums = [0.0] * 2
    for p in range(piece, stop):
        first, last, to = p * step, min(p * step + step, rows), 2 * n * p
        if affine:
            for k in range(to, to + 2 * n):
                room[k] = 0
            for k in range(to, to + 2 * n):
                near[k] = 0
        for r in range(first, last):
            at = r * n
            middle = mean[r] if centre else 0
            scale = rstd[r]
            _both_sums(g, x, w, at, n, middle, scale, sums)
            along = sums[0] / size
            apart = sums[1] / size if centre else 0
            if affine:
                for k in range(n):
                    near[to + k] += g[at + k] * ((x[at + k] - middle) * scale)
                for k in range(n):
                    near[to + n + k] += g[at + k]
                if r % 16 == 15 or r == last - 1:
                    _flush(near, room, to, 2 * n)
            for k in range(n):
                out[at + k] = (
                    g[at + k] * w[k] - (x[at + k] - middle) * scale * along - apart
                ) * scale


def _flush(near: Any, room: Any, at: Any, n: Any) -> None:
    """Add up what a few rows have added up to, in double."""
    for k in range(at, at + n):
        room[k] += float(near[k])
    for k in range(at, at + n):
        near[k] = 0


def _both_sums(g: Any, x: Any, w: Any, at: Any, n: Any, middle: Any, scale: Any, sums: Any) -> None:
    """Of g * w, and of that times normalized x; of pieces as above."""
    one = other = 0.0
    done = 0
    while done < n:
        count = min(2048, n - done)
        _pieces_of_both(g, x, w, at, done, count, middle, scale, sums)
        one += sums[0]
        other += sums[1]
        done += count
    sums[0] = one
    sums[1] = other


def _pieces_of_both(
    g: Any, x: Any, w: Any, at: Any, k: Any, n: Any, middle: Any, scale: Any, sums: Any
) -> None:
    rest = also = 0.0
    lanes, others = [rest] * 32, [also] * 32
    stop = k + n
    while stop - k >= 32:
        for j in range(32):
            lanes[j] += g[at + k + j] * w[k + j] * ((x[at + k + j] - middle) * scale)
        for j in range(32):
            others[j] += g[at + k + j] * w[k + j]
        k += 32
    if n >= 32:
        _join(lanes)
        _join(others)
    while stop - k >= 8:
        for j in range(8):
            lanes[j] += g[at + k + j] * w[k + j] * ((x[at + k + j] - middle) * scale)
        for j in range(8):
            others[j] += g[at + k + j] * w[k + j]
        k += 8
    while k < stop:
        also += g[at + k] * w[k]
        rest += g[at + k] * w[k] * ((x[at + k] - middle) * scale)
        k += 1
    sums[0] = _joined(lanes) + rest if n >= 8 else rest
    sums[1] = _joined(others) + also if n >= 8 else also
