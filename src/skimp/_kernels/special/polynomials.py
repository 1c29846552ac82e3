"""The orthogonal polynomials of torch.special: kernel(x, n, out=...), n of any real type.

Computed in the type of `out` by PyTorch's recurrences, so that they overflow where PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skimp._kernels import bare, shaping
from skimp._kernels.special.base import Array, Kernel

Step = Callable[[Array, Array, Array, int], Array]
_HERMITE_LIMIT = {4: 128, 8: 512}  # PyTorch answers NaN above (by itemsize)


def _recur(y: Array, x: Array, n: Array, q: Array, step: Step) -> None:
    """Write into y the member of order n >= 1, from the one of order 1."""
    p = np.ones_like(x)
    bare.copyto(y, q, where=n >= 1)
    k = 1
    while ((n > k) & ~bare.isnan(q)).any():
        p, q = q, step(x, p, q, k)
        k += 1
        bare.copyto(y, q, where=n >= k)


def _prepare(out: Array, x: Any, n: Any) -> tuple[Array, Array, Array]:
    y = np.atleast_1d(out)
    x = shaping.broadcast(np.asarray(x, y.dtype), y.shape)
    n = shaping.broadcast(np.trunc(np.asarray(n, np.float64)), y.shape)
    n = bare.where(
        bare.isfinite(n), n, -1.0
    )  # PyTorch turns what is no number into a negative degree
    y[...] = bare.where(n < 0, 0.0, 1.0)
    return x, n, y


def _plain(first: Callable[[Array], Array], step: Step, hermite: bool = False) -> Kernel:
    def fill(*arrays: Any, out: Array) -> None:
        x, n, y = _prepare(out, *arrays)
        if hermite:
            y[n > _HERMITE_LIMIT[y.itemsize]] = np.nan
            n = bare.where(n > _HERMITE_LIMIT[y.itemsize], 0, n)
        _recur(y, x, n, first(x), step)

    return fill


def _chebyshev(
    first: Callable[[Array], Array], closed: Callable[[Array, Array], Array], at: int, ends: Any
) -> tuple[Kernel, Kernel]:
    """The polynomial and its shifted sister.

    `closed(angle, n)` serves orders above `at` inside (-1, 1); `ends(n)` are the values at 1 and
    at -1, the latter less its alternating sign.
    """

    def run(x: Array, n: Array, y: Array) -> None:
        trigonometric = (n > at) & (bare.absolute(x) < 1)
        end = (bare.absolute(x) == 1) & (n >= 0)
        low = bare.where(trigonometric | end, 0, n)
        _recur(y, x, low, first(x), lambda x, p, q, k: (x + x) * q - p)
        if trigonometric.any():
            order = n[trigonometric].astype(y.dtype)
            y[trigonometric] = closed(np.arccos(x[trigonometric]), order)
        if end.any():
            right, left = ends(n[end])
            alternating = bare.where(np.fmod(n[end], 2) == 0, left, -left)
            y[end] = bare.where(x[end] > 0, right, alternating)

    def straight(*arrays: Any, out: Array) -> None:
        run(*_prepare(out, *arrays))

    def shifted(*arrays: Any, out: Array) -> None:
        x, n, y = _prepare(out, *arrays)
        run(x + x - 1, n, y)

    return straight, shifted


def _closed_u(angle: Array, n: Array) -> Array:
    sine = np.sin(angle)
    return np.asarray(np.sin((n + 1) * angle) / sine)


def _half_cosine(angle: Array, n: Array) -> Array:
    half = angle.dtype.type(0.5)
    return np.asarray(np.cos((n + half) * angle) / np.cos(angle * half))


def _half_sine(angle: Array, n: Array) -> Array:
    half = angle.dtype.type(0.5)
    return np.asarray(np.sin((n + half) * angle) / np.sin(angle * half))


chebyshev_polynomial_t, shifted_chebyshev_polynomial_t = _chebyshev(
    lambda x: x, lambda angle, n: np.cos(n * angle), 6, lambda n: (np.ones_like(n), np.ones_like(n))
)
chebyshev_polynomial_u, shifted_chebyshev_polynomial_u = _chebyshev(
    lambda x: x + x, _closed_u, 8, lambda n: (n + 1, n + 1)
)
chebyshev_polynomial_v, shifted_chebyshev_polynomial_v = _chebyshev(
    lambda x: x + x - 1, _half_cosine, 8, lambda n: (np.ones_like(n), n + n + 1)
)
chebyshev_polynomial_w, shifted_chebyshev_polynomial_w = _chebyshev(
    lambda x: x + x + 1, _half_sine, 8, lambda n: (n + n + 1, np.ones_like(n))
)
hermite_polynomial_h = _plain(
    lambda x: x + x, lambda x, p, q, k: (x + x) * q - 2 * k * p, hermite=True
)
hermite_polynomial_he = _plain(lambda x: x, lambda x, p, q, k: x * q - k * p, hermite=True)
laguerre_polynomial_l = _plain(
    lambda x: 1 - x, lambda x, p, q, k: (((k + k) + (1 - x)) * q - k * p) / (k + 1)
)
legendre_polynomial_p = _plain(
    lambda x: x, lambda x, p, q, k: ((2 * k + 1) * x * q - k * p) / (k + 1)
)
