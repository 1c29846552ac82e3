"""The regularised incomplete gamma functions P (lower) and Q (upper).

Four ways, by where (a, x) lies: a series for x < a + 1, Legendre's continued fraction beyond, a
second series for small a and x (where 1 - P would cancel), and Temme's uniform expansion for large
a near x = a (DLMF 8.12). Loops run until the last element of a block has converged; the terms that
they then add to the others are too small to change a bit, or are not added.
"""

from __future__ import annotations

from functools import cache
from math import inf, pi

import numpy as np

from skimp._kernels import bare
from skimp._kernels.special.base import F64, Mask, kernel, polynomial
from skimp._kernels.special.erf import erfc64
from skimp._kernels.special.gamma import lgamma64, stirling_rest

_ETA_TERMS, _A_TERMS = 20, 10  # of Temme's expansion: enough for a > 50, |x - a| < 0.4 a
_NOTHING = 2.0**-56
_FRACTION_STEPS = 2000


@cache
def _temme() -> tuple[tuple[float, ...], ...]:
    """The coefficients d[k][n] of eta**n a**-k, by DLMF 8.12.12 in exact arithmetic."""
    from fractions import Fraction  # with `decimal`, for one table

    size = _ETA_TERMS + 2 * _A_TERMS + 3
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, size):
        cross = sum((j * alpha[j] * alpha[n - j + 1] for j in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - cross) / (n + 1))
    first = [Fraction(-1, 3)] + [(n + 2) * alpha[n + 2] for n in range(1, size - 2)]
    rows, odd = [first], 1
    for k in range(1, _A_TERMS):
        odd *= 2 * k + 1
        stirling = (-1) ** k * odd * alpha[2 * k + 1]
        last = rows[-1]
        rows.append([stirling * first[n] + (n + 2) * last[n + 2] for n in range(len(last) - 2)])
    return tuple(tuple(float(d) for d in row[:_ETA_TERMS]) for row in rows)


def _divergence(a: F64, x: F64) -> F64:
    """x / a - 1 - log(x / a), without cancellation near x = a."""
    mu = (x - a) / a
    return np.asarray(mu - bare.where(bare.absolute(mu) < 0.5, bare.log1p(mu), bare.log(x / a)))


def _density(a: F64, x: F64) -> F64:
    """x**a exp(-x) / gamma(a + 1)."""
    small = bare.exp(a * bare.log(x) - x - lgamma64(a + 1.0))
    large = bare.exp(-a * _divergence(a, x) - stirling_rest(a)) / bare.sqrt(2 * pi * a)
    return bare.where(a < 10.0, small, large)


def _lower_series(a: F64, x: F64) -> F64:
    term, total, n = np.ones_like(x), np.ones_like(x), 0.0
    while (term > _NOTHING * total).any():
        n += 1.0
        term *= x / (a + n)
        total += term
    return np.asarray(total * _density(a, x))


def _upper_series(a: F64, x: F64) -> F64:
    """Q for small a and x: 1 - x**a / gamma(a + 1) less the rest of P's alternating series."""
    term, total = np.ones_like(x), np.zeros_like(x)
    for n in range(1, 24):
        term *= -x / n
        total += term / (a + n)
    exponent = a * bare.log(x) - lgamma64(a + 1.0)
    return np.asarray(-bare.expm1(exponent) - bare.exp(exponent) * a * total)


def _upper_fraction(a: F64, x: F64) -> F64:
    """Q by Legendre's continued fraction (Lentz's method); a converged element is frozen."""
    b = x + 1.0 - a
    c = np.full(x.shape, inf)
    d = 1.0 / b
    h = d.copy()
    open_ = np.ones(x.shape, np.bool_)
    for n in range(1, _FRACTION_STEPS):
        an = n * (a - n)
        b = b + 2.0
        d = 1.0 / (an * d + b)
        c = b + an / c
        step = c * d
        open_ &= bare.absolute(step - 1.0) > 2.0**-51
        if not open_.any():
            break
        np.multiply(h, step, out=h, where=open_)
    return np.asarray(h * a * _density(a, x))


def _near(a: F64, x: F64, sign: float) -> F64:
    """Temme: Q for sign 1, P for sign -1."""
    half = _divergence(a, x)
    eta = bare.copysign(bare.sqrt(2.0 * half), x - a)
    rest = np.zeros_like(a)
    for row in reversed(_temme()):
        rest /= a
        rest += polynomial(eta, row)
    rest *= bare.exp(-a * half) / bare.sqrt(2 * pi * a)
    return np.asarray(0.5 * erfc64(sign * eta * bare.sqrt(0.5 * a)) + sign * rest)


def _fill(y: F64, a: F64, x: F64, where: Mask, upper: bool) -> None:
    near = where & (a > 50.0) & (bare.absolute(x - a) < 0.4 * a)
    tiny = where & (a < 1.0) & (x <= 1.1) if upper else np.zeros_like(where)
    series = where & ~near & ~tiny & (x < a + 1.0)
    fraction = where & ~near & ~tiny & ~series
    if near.any():
        y[near] = _near(a[near], x[near], 1.0 if upper else -1.0)
    if tiny.any():
        y[tiny] = _upper_series(a[tiny], x[tiny])
    if series.any():
        lower = _lower_series(a[series], x[series])
        y[series] = 1.0 - lower if upper else lower
    if fraction.any():
        higher = _upper_fraction(a[fraction], x[fraction])
        y[fraction] = higher if upper else 1.0 - higher


def _regularised(a: F64, x: F64, upper: bool) -> F64:
    a, x = np.broadcast_arrays(a, x)
    zero, one = (1.0, 0.0) if upper else (0.0, 1.0)
    y = np.full(a.shape, np.nan)
    # later lines win: PyTorch looks at a == 0 first, then x == 0, infinite a, infinite x
    inside = (a > 0) & (x > 0) & (a < inf) & (x < inf)
    y[x == inf] = one
    y[(a == inf) & (x != inf)] = zero
    y[(a == inf) & (x == inf)] = np.nan
    y[x == 0] = zero
    y[a == 0] = bare.where(x[a == 0] > 0, one, np.nan)
    y[(a < 0) | (x < 0)] = np.nan
    if inside.any():
        _fill(y, a, x, inside, upper)
    return y


def gammainc64(a: F64, x: F64) -> F64:
    """The regularised lower incomplete gamma function."""
    return _regularised(a, x, upper=False)


def gammaincc64(a: F64, x: F64) -> F64:
    """The regularised upper incomplete gamma function."""
    return _regularised(a, x, upper=True)


gammainc = kernel(gammainc64)
gammaincc = kernel(gammaincc64)
