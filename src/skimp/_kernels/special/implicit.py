"""How a gamma or beta number moves with the shape parameter when its quantile stays.

dx/da = -(dF/da) / f for a distribution function F of density f (Figurnov, Mohamed and Mnih, 2018).
dF/da comes from a fourth-order difference of the logarithm of the smaller tail, which is nearly
linear in a, so about 11 digits are right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from skimp._kernels import bare, shaping
from skimp._kernels.special.base import F64
from skimp._kernels.special.gamma import lgamma64
from skimp._kernels.special.gammainc import gammainc64, gammaincc64

_STEPS = 400
_FLOOR = 1e-300
_CLOSE = 5e-16  # two units of the last place, between which a fraction may swing for ever
_STENCIL = np.array([[0.0], [1.0], [-1.0], [2.0], [-2.0]])


def _logarithm(tail: Callable[[F64], F64], a: F64) -> tuple[F64, F64]:
    """log tail at a vector of shapes and its derivative by them, from all points at once."""
    h = 1e-3 * bare.minimum(a, bare.sqrt(a))
    here, up, down, twice, back = bare.log(bare.maximum(tail(a + _STENCIL * h), _FLOOR))
    return here, np.asarray((8 * (up - down) - (twice - back)) / (12 * h))


def gamma_shape_slope(a: F64, x: F64) -> F64:
    """dx/da of x from the gamma distribution of shape a and scale 1."""
    a, x = np.broadcast_arrays(a, x)
    log_density = (a - 1) * bare.log(x) - x - lgamma64(a)
    low = x < a
    result = np.empty(a.shape)
    for chosen, tail, sign in ((low, gammainc64, -1.0), (~low, gammaincc64, 1.0)):
        if chosen.any():
            to = x[chosen]
            here, slope = _logarithm(partial(_swapped, tail, to), a[chosen])
            result[chosen] = sign * slope * bare.exp(here - log_density[chosen])
    return result


def _swapped(tail: Callable[[F64, F64], F64], x: F64, a: F64) -> F64:
    return tail(a, shaping.broadcast(x, a.shape))


def _beta_fraction(a: F64, b: F64, x: F64) -> F64:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    c, d = np.ones_like(x), 1 - (a + b) * x / (a + 1)
    d = 1 / bare.where(bare.absolute(d) < tiny, tiny, d)
    h = d.copy()
    for m in range(1, _STEPS):
        last = h.copy()
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / bare.where(bare.absolute(d) < tiny, tiny, d)
            c = 1 + term / c
            c = bare.where(bare.absolute(c) < tiny, tiny, c)
            h *= c * d
        if (bare.absolute(h - last) <= _CLOSE * bare.absolute(h)).all():
            break
    return h


def _log_beta_density(a: F64, b: F64, x: F64) -> F64:
    """log(x**a (1 - x)**b / B(a, b)): the density times x (1 - x)."""
    norm = lgamma64(a + b) - lgamma64(a) - lgamma64(b)
    return np.asarray(norm + a * bare.log(x) + b * bare.log1p(-x))


def _betainc(a: F64, b: F64, x: F64) -> F64:
    """The lower tail, where the fraction converges fast: x < (a + 1) / (a + b + 2)."""
    return np.asarray(bare.exp(_log_beta_density(a, b, x)) / a * _beta_fraction(a, b, x))


def _upper_beta(b: F64, x: F64, a: F64) -> F64:
    return _betainc(b, a, 1 - x)


def beta_shape_slope(x: F64, a: F64, total: F64) -> F64:
    """dx/da / (1 - x) of x from the beta distribution of a and total - a, the latter held."""
    x, a, total = np.broadcast_arrays(x, a, total)
    b = total - a
    result = np.empty(x.shape)
    low = x * (total + 2) < a + 1
    # log(density * (1 - x)) from the one that is symmetric in x and 1 - x
    log_weight = _log_beta_density(a, b, x) - bare.log(x)
    for chosen, sign in ((low, -1.0), (~low, 1.0)):
        if chosen.any():
            rest, to = b[chosen], x[chosen]
            tail = partial(_betainc, b=rest, x=to) if sign < 0 else partial(_upper_beta, rest, to)
            here, slope = _logarithm(tail, a[chosen])
            result[chosen] = sign * slope * bare.exp(here - log_weight[chosen])
    return result
