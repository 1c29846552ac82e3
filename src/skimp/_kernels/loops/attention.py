"""Attention of whole matrices: products by BLAS, and rows between them whose sums are in lanes.
Each matrix is one thread's, so bits do not depend on the team's size."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import _bytes, _into, _of, _places, log
from skimp._kernels.loops.exponentials import _exps
from skimp._kernels.loops.products import (
    _cleared,
    _matrix,
    _multiplied,
    _pitch,
    _row,
    _target,
    _turned,
)
from skimp._kernels.loops.sums import _product, _sum, _top


def attended(
    gemm: Any, wide: Any, q: Any, k: Any, v: Any, scale: Any, sizes: Any, seen: Any, added: Any,
    kept: Any, grow: Any, room: Any, level: Any, out: Any, threads: Any,
) -> None:  # fmt: skip
    """out = softmax(q k' * scale, under masks) v of each head of each image, by so many threads, of
    which each that has a matrix has a row of `room`, and one for k's transpose if that is asked
    for; level = the logarithms of the sums of the scores' exponentials, -inf of rows
    that see nothing, whose results are 0.

    `gemm`: where BLAS's product is, and whether its integers are of 64 bits. Rows are runs of
    memory. `sizes`: how many keys, rows and heads there are; whether rows see no key behind their
    own place; whether they see what is `seen` (1), or something is `added` (2); whether some is
    `kept`; what image, head and place are multiplied with for a row's number in its mask; how many
    rows are made at once; and whether k (and v, back) is turned for all blocks, which BLAS reads
    sooner.
    """
    n = q.shape[0] * q.shape[1]
    if threads < 2:
        with cython.nogil:
            _attended(
                gemm, wide, q, k, v, scale, sizes, seen, added, kept, grow, room, level, out,
                0, n, 0,
            )  # fmt: skip
        return
    threads = _with_room(threads, room.shape[0] // (1 + (sizes[10] > 0)), n)
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _attended(
            gemm, wide, q, k, v, scale, sizes, seen, added, kept, grow, room, level, out,
            t * n // threads, (t + 1) * n // threads, t,
        )  # fmt: skip


def _with_room(threads: Any, rooms: Any, matrices: Any) -> Any:
    """How many threads take part: their number may have been raised since there is the room."""
    return threads if rooms >= matrices else min(threads, rooms)


def _attended(
    gemm: Any, wide: Any, q: Any, k: Any, v: Any, scale: Any, sizes: Any, seen: Any, added: Any,
    kept: Any, grow: Any, room: Any, level: Any, out: Any, first: Any, last: Any, t: Any,
) -> None:  # fmt: skip
    one = 1.0
    rows, width, deep, step = q.shape[2], v.shape[3], q.shape[3], _places(sizes)[9]
    turned = _places(sizes)[10] > 0
    t = min(t, first)  # who has a matrix, where there are fewer of these than threads
    s, kt = _row(room, t * (1 + turned)), _row(room, t * (1 + turned) + turned)
    for m in range(first, last):
        i, h = m // q.shape[1], m % q.shape[1]
        to, apart = _matrix(k, i, h, 0), _pitch(k)
        if turned:
            _turned(to, apart, k.shape[2], deep, kt)
            to, apart = kt, k.shape[2]
        for block in range((rows + step - 1) // step):
            r = block * step
            count = min(step, rows - r)
            keys = min(k.shape[2], r + count) if _places(sizes)[3] > 0 else k.shape[2]
            _multiplied(
                gemm, wide, 0, not turned, count, keys, deep, scale, _matrix(q, i, h, r),
                _pitch(q), to, apart, 0, s, keys,
            )  # fmt: skip
            _weigh(
                s, keys, count, _places(sizes), _bytes(seen), _of(added), _bytes(kept), grow,
                _into(level), m * rows + r,
            )  # fmt: skip
            _multiplied(
                gemm, wide, 0, 0, count, width, keys, one, s, keys, _matrix(v, i, h, 0),
                _pitch(v), 0, _target(out, i, h, r), _pitch(out),
            )  # fmt: skip


def _weigh(
    s: Any, n: Any, count: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any,
    level: Any, before: Any,
) -> None:  # fmt: skip
    """The scores of so many rows, of n keys, become what values are weighed by: softmax's of rows,
    times `kept` and `grow` if that is asked for. `before`: rows that come before all of them."""
    one, nothing, lowest = 1.0, 0.0, -3.4028235e38
    hidden = lowest + lowest
    first = 0
    while first < count:
        stop = min(count, first + max(1, 2048 // n))  # exponentials are made of many at once
        for r in range(first, stop):
            _hide(s, r * n, n, sizes, seen, added, before + r, hidden)
            top = _top(s, r * n, n)
            level[before + r] = top
            _lower(s, r * n, n, lowest if top == hidden else top)
        _exps(s, first * n, (stop - first) * n, s, first * n)
        for r in range(first, stop):
            total = _sum(s, r * n, n)
            if total == nothing:
                continue
            level[before + r] = level[before + r] + log(total)
            if sizes[5] > 0:
                _thin(s, r * n, n, kept, (before + r) * sizes[0], grow / total)
            else:
                _scale(s, r * n, n, one / total)
        first = stop


def attended_back(
    gemm: Any, wide: Any, g: Any, q: Any, k: Any, v: Any, scale: Any, sizes: Any, seen: Any,
    added: Any, kept: Any, grow: Any, room: Any, level: Any, dq: Any, dk: Any, dv: Any,
    threads: Any,
) -> None:  # fmt: skip
    """The gradients of q, k and v by g, the result's; `level` is as `attended` made it."""
    n = q.shape[0] * q.shape[1]
    if threads < 2:
        with cython.nogil:
            _attended_back(
                gemm, wide, g, q, k, v, scale, sizes, seen, added, kept, grow, room, level,
                dq, dk, dv, 0, n, 0,
            )  # fmt: skip
        return
    threads = _with_room(threads, room.shape[0] // (2 + 2 * (sizes[10] > 0)), n)
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _attended_back(
            gemm, wide, g, q, k, v, scale, sizes, seen, added, kept, grow, room, level, dq, dk, dv,
            t * n // threads, (t + 1) * n // threads, t,
        )  # fmt: skip


def _attended_back(
    gemm: Any, wide: Any, g: Any, q: Any, k: Any, v: Any, scale: Any, sizes: Any, seen: Any,
    added: Any, kept: Any, grow: Any, room: Any, level: Any, dq: Any, dk: Any, dv: Any,
    first: Any, last: Any, t: Any,
) -> None:  # fmt: skip
    """From the last rows on, which see most keys: what those give is written, and the others' is
    added."""
    one = 1.0
    rows, width, deep, step = q.shape[2], v.shape[3], q.shape[3], _places(sizes)[9]
    turned = _places(sizes)[10] > 0
    t = min(t, first) * (2 + 2 * turned)
    s, d = _row(room, t), _row(room, t + 1)
    kt, vt = _row(room, t + 2 * turned), _row(room, t + 3 * turned)
    for m in range(first, last):
        i, h = m // q.shape[1], m % q.shape[1]
        to, apart = _matrix(k, i, h, 0), _pitch(k)
        values, between = _matrix(v, i, h, 0), _pitch(v)
        if turned:
            _turned(to, apart, k.shape[2], deep, kt)
            _turned(values, between, k.shape[2], width, vt)
            to, apart, values, between = kt, k.shape[2], vt, k.shape[2]
        later = 0
        for block in range((rows - 1) // step, -1, -1):
            r = block * step
            count = min(step, rows - r)
            keys = min(k.shape[2], r + count) if _places(sizes)[3] > 0 else k.shape[2]
            _multiplied(
                gemm, wide, 0, not turned, count, keys, deep, scale, _matrix(q, i, h, r),
                _pitch(q), to, apart, 0, s, keys,
            )  # fmt: skip
            _multiplied(
                gemm, wide, 0, not turned, count, keys, width, one, _matrix(g, i, h, r),
                _pitch(g), values, between, 0, d, keys,
            )  # fmt: skip
            _weigh_back(
                s, keys, count, _places(sizes), _bytes(seen), _of(added), _bytes(kept), grow,
                _of(level), scale, d, m * rows + r,
            )  # fmt: skip
            _multiplied(
                gemm, wide, 1, 0, keys, width, count, one, s, keys, _matrix(g, i, h, r),
                _pitch(g), later, _target(dv, i, h, 0), _pitch(dv),
            )  # fmt: skip
            _multiplied(
                gemm, wide, 0, 0, count, deep, keys, one, d, keys, _matrix(k, i, h, 0),
                _pitch(k), 0, _target(dq, i, h, r), _pitch(dq),
            )  # fmt: skip
            _multiplied(
                gemm, wide, 1, 0, keys, deep, count, one, d, keys, _matrix(q, i, h, r),
                _pitch(q), later, _target(dk, i, h, 0), _pitch(dk),
            )  # fmt: skip
            if later == 0:
                hidden = k.shape[2] - keys  # nobody sees these keys
                _cleared(_target(dk, i, h, keys), _pitch(dk), hidden, deep)
                _cleared(_target(dv, i, h, keys), _pitch(dv), hidden, width)
            later = 1


def _weigh_back(
    s: Any, n: Any, count: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any,
    level: Any, scale: Any, d: Any, before: Any,
) -> None:  # fmt: skip
    """The scores become the weights that `_weigh` made of them; and d, the gradient of these, the
    gradient of the scores times `scale`."""
    one, nothing, lowest = 1.0, 0.0, -3.4028235e38
    hidden = lowest + lowest
    first = 0
    while first < count:
        stop = min(count, first + max(1, 2048 // n))
        for r in range(first, stop):
            _hide(s, r * n, n, sizes, seen, added, before + r, hidden)
            top = level[before + r]
            _lower(s, r * n, n, lowest if top == hidden else top)
        _exps(s, first * n, (stop - first) * n, s, first * n)
        for r in range(first, stop):
            if sizes[5] > 0:
                _thin(d, r * n, n, kept, (before + r) * sizes[0], grow)
            total = _sum(s, r * n, n)
            each = one if total == nothing else one / total
            mean = _product(d, s, r * n, n) * each
            for k in range(r * n, r * n + n):
                d[k] = (d[k] - mean) * (s[k] * (each * scale))
            if sizes[5] > 0:
                _thin(s, r * n, n, kept, (before + r) * sizes[0], grow * each)
            else:
                _scale(s, r * n, n, each)
        first = stop


def _lower(s: Any, at: Any, n: Any, by: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] - by


def _scale(s: Any, at: Any, n: Any, by: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] * by


def _thin(s: Any, at: Any, n: Any, kept: Any, of: Any, grow: Any) -> None:
    for k in range(n):
        s[at + k] = s[at + k] * (kept[of + k] * grow)


def _hide(s: Any, at: Any, n: Any, sizes: Any, seen: Any, added: Any, r: Any, hidden: Any) -> None:
    """What row r doesn't see, of n keys whose scores are there."""
    if sizes[4] > 0:
        rows, heads = sizes[1], sizes[2]
        of = r // (heads * rows) * sizes[6] + r // rows % heads * sizes[7] + r % rows * sizes[8]
        of = of * sizes[0]
        if sizes[4] == 2:
            for k in range(n):
                s[at + k] = s[at + k] + added[of + k]
        else:
            for k in range(n):
                x = s[at + k]
                s[at + k] = x if seen[of + k] else hidden
    if sizes[3] > 0:
        for k in range(r % sizes[1] + 1, n):
            s[at + k] = hidden
