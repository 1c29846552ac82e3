"""Attention between its products; sums are in lanes."""

from __future__ import annotations

from typing import Any

import cython

from skimp._kernels.loops.arithmetic import _into, _of, log
from skimp._kernels.loops.exponentials import _exps
from skimp._kernels.loops.sums import _product, _sum, _top


def attended(s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any) -> None:
    """The scores s become what values are weighed by, softmax's of rows, times `kept` and `grow` if
    that is asked for; level = the logarithms of the sums of their exponentials, -inf of rows that
    see nothing, whose weights are 0.

    `sizes`: how many keys, rows and heads there are; whether rows see no key behind their own
    place; whether they see what is `seen` (1), or something is `added` (2); whether some is `kept`;
    and what image, head and place are multiplied with for a row's number in its mask.
    """
    if not cython.compiled:
        _attended(s, sizes, seen, added, kept, grow, level, 0, len(level))
        return
    with cython.nogil:
        _attended(
            _into(s), cython.address(sizes[0]), cython.address(seen[0]), _of(added),
            cython.address(kept[0]), grow, _into(level), 0, level.shape[0],
        )  # fmt: skip


def _attended(
    s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    one, nothing, lowest = 1.0, 0.0, -3.4028235e38
    hidden = lowest + lowest
    n = sizes[0]
    while first < last:
        stop = min(last, first + max(1, 2048 // n))  # exponentials are made of many at once
        for r in range(first, stop):
            _hide(s, sizes, seen, added, r, hidden)
            top = _top(s, r * n, n)
            level[r] = top
            _lower(s, r * n, n, lowest if top == hidden else top)
        _exps(s, first * n, (stop - first) * n, s, first * n)
        for r in range(first, stop):
            total = _sum(s, r * n, n)
            if total == nothing:
                continue
            level[r] = level[r] + log(total)
            if sizes[5] > 0:
                _thin(s, r * n, n, kept, grow / total)
            else:
                _scale(s, r * n, n, one / total)
        first = stop


def attended_back(
    s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any, scale: Any, d: Any
) -> None:
    """The scores become the weights that `attended` made of them; and d, the gradient of these, the
    gradient of the scores times `scale`.
    """
    if not cython.compiled:
        _attended_back(s, sizes, seen, added, kept, grow, level, scale, d, 0, len(level))
        return
    with cython.nogil:
        _attended_back(
            _into(s), cython.address(sizes[0]), cython.address(seen[0]), _of(added),
            cython.address(kept[0]), grow, _of(level), scale, _into(d), 0, level.shape[0],
        )  # fmt: skip


def _attended_back(
    s: Any, sizes: Any, seen: Any, added: Any, kept: Any, grow: Any, level: Any, scale: Any,
    d: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    one, nothing, lowest = 1.0, 0.0, -3.4028235e38
    hidden = lowest + lowest
    n = sizes[0]
    while first < last:
        stop = min(last, first + max(1, 2048 // n))
        for r in range(first, stop):
            _hide(s, sizes, seen, added, r, hidden)
            top = level[r]
            _lower(s, r * n, n, lowest if top == hidden else top)
        _exps(s, first * n, (stop - first) * n, s, first * n)
        if sizes[5] > 0:
            _thin(d, first * n, (stop - first) * n, kept, grow)
        for r in range(first, stop):
            total = _sum(s, r * n, n)
            each = one if total == nothing else one / total
            mean = _product(d, s, r * n, n) * each
            for k in range(r * n, r * n + n):
                d[k] = (d[k] - mean) * (s[k] * (each * scale))
            if sizes[5] > 0:
                _thin(s, r * n, n, kept, grow * each)
            else:
                _scale(s, r * n, n, each)
        first = stop


def _lower(s: Any, at: Any, n: Any, by: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] - by


def _scale(s: Any, at: Any, n: Any, by: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] * by


def _thin(s: Any, at: Any, n: Any, kept: Any, grow: Any) -> None:
    for k in range(at, at + n):
        s[k] = s[k] * (kept[k] * grow)


def _hide(s: Any, sizes: Any, seen: Any, added: Any, r: Any, hidden: Any) -> None:
    """What row r doesn't see."""
    n = sizes[0]
    at = r * n
    if sizes[4] > 0:
        rows, heads = sizes[1], sizes[2]
        of = r // (heads * rows) * sizes[6] + r // rows % heads * sizes[7] + r % rows * sizes[8]
        of = of * n
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
