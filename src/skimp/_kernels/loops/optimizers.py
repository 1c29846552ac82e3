"""Optimizers' updates."""

from __future__ import annotations

from typing import Any

import cython

from skimp._kernels.loops.arithmetic import sqrt
from skimp._kernels.loops.places import _lie_outside


def sgd(jobs: Any, numbers: Any) -> None:
    """SGD's: p -= lr * g"""
    for p, g in jobs:
        if p.shape[0] < 16384:
            _sgd(p, g, numbers)
        else:
            with cython.nogil:
                _sgd(p, g, numbers)


def _sgd(p: Any, g: Any, numbers: Any) -> None:
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    lr = numbers[3]
    for i in range(p.shape[0]):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        p[i] = p[i] - lr * x


def momentum(jobs: Any, numbers: Any) -> None:
    """SGD's with momentum, but for the first: b = keep * b + new * g, and p -= lr * b or, if it is
    `nesterov`, lr * (g + keep * b)."""
    for p, b, g in jobs:
        if p.shape[0] < 16384:
            _momentum(p, b, g, numbers)
        else:
            with cython.nogil:
                _momentum(p, b, g, numbers)


def _momentum(p: Any, b: Any, g: Any, numbers: Any) -> None:
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    keep, new, nesterov, lr = numbers[3], numbers[4], numbers[5] != 0, numbers[6]
    for i in range(p.shape[0]):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        mean = b[i] * keep + new * x
        b[i] = mean
        p[i] = p[i] - lr * (x + keep * mean if nesterov else mean)


def adam(jobs: Any, numbers: Any) -> None:
    """Adam's: the mean of the gradient moves by a `weight` from the old one if that is `near`, else
    from the gradient; `size` and `root` correct the means' beginning."""
    for p, m, v, g in jobs:
        if p.shape[0] < 16384:
            _adam(p, m, v, g, numbers)
        else:
            with cython.nogil:
                _adam(p, m, v, g, numbers)


def _adam(p: Any, m: Any, v: Any, g: Any, numbers: Any) -> None:
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    shrink, near, weight, keep = numbers[3], numbers[4] != 0, numbers[5], numbers[6]
    new, size, root, eps = numbers[7], numbers[8], numbers[9], numbers[10]
    for i in range(p.shape[0]):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        mean = m[i] + (x - m[i]) * weight if near else x - (x - m[i]) * weight
        square = v[i] * keep + new * x * x
        m[i] = mean
        v[i] = square
        p[i] = p[i] * shrink - size * mean / (sqrt(square) / root + eps)


def amsgrad(jobs: Any, numbers: Any) -> None:
    """The same, by the largest mean of the square so far."""
    for p, m, v, top, g in jobs:
        if p.shape[0] < 16384:
            _amsgrad(p, m, v, top, g, numbers)
        else:
            with cython.nogil:
                _amsgrad(p, m, v, top, g, numbers)


def _amsgrad(p: Any, m: Any, v: Any, top: Any, g: Any, numbers: Any) -> None:
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    shrink, near, weight, keep = numbers[3], numbers[4] != 0, numbers[5], numbers[6]
    new, size, root, eps = numbers[7], numbers[8], numbers[9], numbers[10]
    for i in range(p.shape[0]):
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


def rmsprop(jobs: Any, numbers: Any) -> None:
    """RMSprop's."""
    for p, v, g in jobs:
        if p.shape[0] < 16384:
            _rmsprop(p, v, g, numbers)
        else:
            with cython.nogil:
                _rmsprop(p, v, g, numbers)


def _rmsprop(p: Any, v: Any, g: Any, numbers: Any) -> None:
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    keep, new, lr, eps = numbers[3], numbers[4], numbers[5], numbers[6]
    for i in range(p.shape[0]):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        square = v[i] * keep + new * x * x
        v[i] = square
        p[i] = p[i] - lr * x / (sqrt(square) + eps)


def rmsprop_momentum(jobs: Any, numbers: Any) -> None:
    """The same with momentum."""
    for p, v, b, g in jobs:
        if p.shape[0] < 16384:
            _rmsprop_momentum(p, v, b, g, numbers)
        else:
            with cython.nogil:
                _rmsprop_momentum(p, v, b, g, numbers)


def _rmsprop_momentum(p: Any, v: Any, b: Any, g: Any, numbers: Any) -> None:
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    keep, new, momentum, lr = numbers[3], numbers[4], numbers[5], numbers[6]
    eps = numbers[7]
    for i in range(p.shape[0]):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        square = v[i] * keep + new * x * x
        mean = b[i] * momentum + x / (sqrt(square) + eps)
        v[i] = square
        b[i] = mean
        p[i] = p[i] - lr * mean


def adagrad(jobs: Any, numbers: Any) -> None:
    """Adagrad's."""
    for p, v, g in jobs:
        if p.shape[0] < 16384:
            _adagrad(p, v, g, numbers)
        else:
            with cython.nogil:
                _adagrad(p, v, g, numbers)


def _adagrad(p: Any, v: Any, g: Any, numbers: Any) -> None:
    sign, decay, decays = numbers[0], numbers[1], numbers[2] != 0
    size, eps = numbers[3], numbers[4]
    for i in range(p.shape[0]):
        x = sign * g[i]
        x = x + decay * p[i] if decays else x
        square = v[i] + x * x
        v[i] = square
        p[i] = p[i] - size * x / (sqrt(square) + eps)


def sparse_adam(p: Any, m: Any, v: Any, places: Any, rows: Any, numbers: Any) -> Any:
    """Adam's in rows at places, each of which is there once, by the rows of a gradient; whether it
    is done, as nothing is where a place is not one of the parameter's."""
    if _lie_outside(places, p.shape[0]):
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
