"""Optimizers' updates."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import (
    _into,
    _of,
    _past,
    _places,
    _read,
    _released,
    _sizes,
    _table,
    sqrt,
)
from skimp._kernels.loops.places import _lie_outside


def _updated(update: Any, wide: Any, jobs: Any, numbers: Any, threads: Any) -> None:
    """Make an update of the elements of all jobs, each so many arrays of one size, by so many
    threads; each takes a range of them all, in which large arrays are cut."""
    many, total = len(jobs), 0
    table, ends = _table(many * wide), _sizes(many)
    try:
        for k in range(many):
            for i in range(wide - 1):
                view = jobs[k][i]
                table[k * wide + i] = _into(view)
            given = jobs[k][wide - 1]  # the gradient, which may be one that nobody may write to
            table[k * wide + wide - 1] = _read(given)
            total += given.shape[0]
            ends[k] = total
        if total < 16384:  # which takes less than to let go of the lock, and to get it again
            _ranged(update, wide, table, ends, many, _of(numbers), 0, total)
        elif threads < 2:
            with cython.nogil:
                _ranged(update, wide, table, ends, many, _of(numbers), 0, total)
        else:
            step = (total // threads // 16 + 1) * 16
            for t in prange(
                threads, nogil=True, num_threads=threads, schedule="static", chunksize=1
            ):
                _ranged(
                    update, wide, table, ends, many, _of(numbers), t * step,
                    min((t + 1) * step, total),
                )  # fmt: skip
    finally:
        _released(table)
        _released(ends)


def _ranged(
    update: Any, wide: Any, table: Any, ends: Any, many: Any, numbers: Any, first: Any, last: Any
) -> None:
    start = 0
    for k in range(many):
        low, high = max(first, start) - start, min(last, ends[k]) - start
        if low < high:
            update(_past(table, k * wide), low, high, numbers)
        start = ends[k]


def sgd(jobs: Any, numbers: Any, threads: Any) -> None:
    """SGD's: p -= lr * g"""
    _updated(_sgd, 2, jobs, numbers, threads)


def _sgd(at: Any, first: Any, last: Any, numbers: Any) -> None:
    p, g = at[0], at[1]
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    lr = numbers[3]
    for i in range(first, last):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        p[i] = p[i] - lr * x


def momentum(jobs: Any, numbers: Any, threads: Any) -> None:
    """SGD's with momentum, but for the first: b = keep * b + new * g, and p -= lr * b or, if it is
    `nesterov`, lr * (g + keep * b)."""
    _updated(_momentum, 3, jobs, numbers, threads)


def _momentum(at: Any, first: Any, last: Any, numbers: Any) -> None:
    p, b, g = at[0], at[1], at[2]
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    keep, new, nesterov, lr = numbers[3], numbers[4], numbers[5] != 0, numbers[6]
    for i in range(first, last):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        mean = b[i] * keep + new * x
        b[i] = mean
        p[i] = p[i] - lr * (x + keep * mean if nesterov else mean)


def adam(jobs: Any, numbers: Any, threads: Any) -> None:
    """Adam's: the mean of the gradient moves by a `weight` from the old one if that is `near`, else
    from the gradient; `size` and `root` correct the means' beginning."""
    _updated(_adam, 4, jobs, numbers, threads)


def _adam(at: Any, first: Any, last: Any, numbers: Any) -> None:
    p, m, v, g = at[0], at[1], at[2], at[3]
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    shrink, near, weight, keep = numbers[3], numbers[4] != 0, numbers[5], numbers[6]
    new, size, root, eps = numbers[7], numbers[8], numbers[9], numbers[10]
    for i in range(first, last):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        mean = m[i] + (x - m[i]) * weight if near else x - (x - m[i]) * weight
        square = v[i] * keep + new * x * x
        m[i] = mean
        v[i] = square
        p[i] = p[i] * shrink - size * mean / (sqrt(square) / root + eps)


def amsgrad(jobs: Any, numbers: Any, threads: Any) -> None:
    """The same, by the largest mean of the square so far."""
    _updated(_amsgrad, 5, jobs, numbers, threads)


def _amsgrad(at: Any, first: Any, last: Any, numbers: Any) -> None:
    p, m, v, top, g = at[0], at[1], at[2], at[3], at[4]
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    shrink, near, weight, keep = numbers[3], numbers[4] != 0, numbers[5], numbers[6]
    new, size, root, eps = numbers[7], numbers[8], numbers[9], numbers[10]
    for i in range(first, last):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        mean = m[i] + (x - m[i]) * weight if near else x - (x - m[i]) * weight
        square = v[i] * keep + new * x * x
        m[i] = mean
        v[i] = square
        most = top[i]
        most = most if (most >= square) | (most != most) else square
        top[i] = most
        p[i] = p[i] * shrink - size * mean / (sqrt(most) / root + eps)


def rmsprop(jobs: Any, numbers: Any, threads: Any) -> None:
    """RMSprop's."""
    _updated(_rmsprop, 3, jobs, numbers, threads)


def _rmsprop(at: Any, first: Any, last: Any, numbers: Any) -> None:
    p, v, g = at[0], at[1], at[2]
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    keep, new, lr, eps = numbers[3], numbers[4], numbers[5], numbers[6]
    for i in range(first, last):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        square = v[i] * keep + new * x * x
        v[i] = square
        p[i] = p[i] - lr * x / (sqrt(square) + eps)


def rmsprop_momentum(jobs: Any, numbers: Any, threads: Any) -> None:
    """The same with momentum."""
    _updated(_rmsprop_momentum, 4, jobs, numbers, threads)


def _rmsprop_momentum(at: Any, first: Any, last: Any, numbers: Any) -> None:
    p, v, b, g = at[0], at[1], at[2], at[3]
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    keep, new, momentum, lr = numbers[3], numbers[4], numbers[5], numbers[6]
    eps = numbers[7]
    for i in range(first, last):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        square = v[i] * keep + new * x * x
        mean = b[i] * momentum + x / (sqrt(square) + eps)
        v[i] = square
        b[i] = mean
        p[i] = p[i] - lr * mean


def adagrad(jobs: Any, numbers: Any, threads: Any) -> None:
    """Adagrad's."""
    _updated(_adagrad, 3, jobs, numbers, threads)


def _adagrad(at: Any, first: Any, last: Any, numbers: Any) -> None:
    p, v, g = at[0], at[1], at[2]
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    size, eps = numbers[3], numbers[4]
    for i in range(first, last):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        square = v[i] + x * x
        v[i] = square
        p[i] = p[i] - size * x / (sqrt(square) + eps)


def sparse_adam(p: Any, m: Any, v: Any, places: Any, rows: Any, numbers: Any) -> Any:
    """Adam's in rows at places, each of which is there once, by the rows of a gradient; whether it
    is done, as nothing is where a place is not one of the parameter's."""
    if _lie_outside(_places(places), places.shape[0], p.shape[0]):
        return False
    weight, rest, size, eps = numbers[0], numbers[1], numbers[2], numbers[3]
    for i in range(places.shape[0]):
        at = places[i]
        for k in range(p.shape[1]):
            x = rows[i, k]
            mean = (x - m[at, k]) * weight + m[at, k]
            square = (x * x - v[at, k]) * rest + v[at, k]
            m[at, k] = mean
            v[at, k] = square
            p[at, k] = mean / (sqrt(square) + eps) * size + p[at, k]
    return True
