"""The gamma function's family: lgamma, digamma, polygamma, zeta."""

from __future__ import annotations

from math import factorial, inf, log, pi

import numpy as np

from skimp._kernels import bare
from skimp._kernels.special.base import F64, Array, kernel, pieces, polynomial, ratio, sin_pi

# lgamma(2 + t) / t on [-0.5, 0.5]
_LGAMMA_P = (
    0.42278433509846713, 0.9480116457986335, 0.7589092934259779, 0.2781906125841576,
    0.04785410907816608, 0.0034114043123767463, 6.592511985739899e-05,
)  # fmt: skip
_LGAMMA_Q = (
    1.0, 1.4795832306058123, 0.825822412082363, 0.2151513867155651, 0.026090019125255572,
    0.0012538507953067442, 1.416747535591379e-05,
)  # fmt: skip
# With Bernoulli's numbers B: B / 2k (2k-1) for log gamma, B / 2k for digamma, (2k)! / B for zeta
_STIRLING = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1307674368000 / 691, 74724249600.0,
    -10670622842880000 / 3617, 5109094217170944000 / 43867,
)  # fmt: skip
_LARGE = 10.0  # from here on the asymptotic series are exact to rounding


def stirling_rest(x: F64) -> F64:
    """log gamma(x) less (x - 1/2) log x - x + log(2 pi) / 2, for x from 10."""
    return np.asarray(polynomial(1.0 / (x * x), _STIRLING) / x)


def _lgamma_large(x: F64) -> F64:
    # (x - 1/2)(log x - 1) is infinite at infinity; (x - 1/2) log x - x would be NaN
    y = (x - 0.5) * (bare.log(x) - 1.0)
    y += 0.5 * log(2 * pi) - 0.5
    y += stirling_rest(x)
    return np.asarray(y)


def _lgamma_middle(x: F64) -> F64:
    """On (-0.5, 10): t = x - nearest integer is exact, and so the zeros at 1 and 2 are."""
    n = np.rint(x)
    t = x - n
    product = bare.where(n > 2, x - 1.0, 1.0)
    for j in range(2, 9):
        product *= bare.where(n > j + 1, x - j, 1.0)
    below = bare.absolute(bare.where(n < 2, x, 1.0))
    below *= bare.where(n < 1, x + 1.0, 1.0)
    return np.asarray(t * ratio(t, _LGAMMA_P, _LGAMMA_Q) + bare.log(product) - bare.log(below))


def lgamma64(x: F64) -> F64:
    """log |gamma(x)|."""
    return pieces(
        x,
        (x >= _LARGE, _lgamma_large),
        ((x > -0.5) & (x < _LARGE), _lgamma_middle),
        (
            (x <= -0.5) & (x > -inf),
            lambda x: bare.log(pi / bare.absolute(sin_pi(x))) - lgamma64(1.0 - x),
        ),
        (x == -inf, lambda x: -x),
    )


def _digamma_large(x: F64) -> F64:
    inverse = 1.0 / x
    square = inverse * inverse
    return np.asarray(bare.log(x) - 0.5 * inverse - square * polynomial(square, _DIGAMMA))


def _digamma_small(x: F64) -> F64:
    shift = 1.0 / x
    for j in range(1, 10):
        shift += 1.0 / (x + j)
    return np.asarray(_digamma_large(x + 10.0) - shift)


def digamma64(x: F64) -> F64:
    """The derivative of lgamma; an infinity of the other sign at +-0, NaN at the other poles."""
    return pieces(
        x,
        (x >= _LARGE, _digamma_large),
        ((x >= 0) & (x < _LARGE), _digamma_small),
        (
            (x < 0) & (x != bare.floor(x)),
            lambda x: digamma64(1.0 - x) - pi / np.tan(pi * (x - np.rint(x))),
        ),
    )


def _zeta_right(s: F64, q: F64) -> F64:
    """Hurwitz zeta for s > 1, q > 0: ten terms, then Euler and Maclaurin's sum for the rest."""
    total = np.power(q, -s)
    for j in range(1, 10):
        total += np.power(q + j, -s)
    a = q + 10.0
    b = np.power(a, -s)
    total += b * a / (s - 1.0) + 0.5 * b
    s = bare.minimum(s, 1e6)  # beyond it b is 0, and 0 times an overflow would be NaN
    inverse = 1.0 / a
    term = b * s * inverse
    for k, divisor in enumerate(_EULER_MACLAURIN):
        total += term / divisor
        term = term * ((s + (2 * k + 1)) * inverse) * ((s + (2 * k + 2)) * inverse)
    return np.asarray(total)


def _zeta_left(s: F64, q: F64) -> F64:
    """For q < 0 and whole s: the terms left of 0 are a difference of two sums from the right."""
    f = -q - bare.floor(-q)
    sign = bare.where(np.fmod(s, 2.0) == 0, 1.0, -1.0)
    return np.asarray(
        _zeta_right(s, 1.0 - f) + sign * (_zeta_right(s, f) - _zeta_right(s, 1.0 - q))
    )


def zeta64(s: F64, q: F64) -> F64:
    """Hurwitz zeta, sum of (q + k)**-s; infinite at s = 1 and at q = 0, -1, ... as in PyTorch."""
    s, q = np.broadcast_arrays(s, q)
    y = np.full(s.shape, np.nan)
    whole = q == bare.floor(q)
    y[(s == 1) | (~(s < 1) & (q <= 0) & whole)] = inf
    y[(s == inf) & (q < 1)] = inf  # as in PyTorch, which stops at NaN above
    y[(s == inf) & (q == 1)] = 1.0
    right = (s > 1) & (s < inf) & (q > 0) & (q < inf)
    if right.any():
        y[right] = _zeta_right(s[right], q[right])
    left = (s > 1) & (s < inf) & (q < 0) & ~whole & (s == bare.floor(s))
    if left.any():
        y[left] = _zeta_left(s[left], q[left])
    return y


def trigamma64(x: F64) -> F64:
    """The derivative of digamma; infinite at every pole."""
    return bare.where(x == inf, 0.0, zeta64(np.full(x.shape, 2.0), x))


def trigamma(x: Array, *, out: Array) -> None:
    """The derivative of digamma; at the poles below 0 the large number that PyTorch's reflection
    gives.
    """
    _trigamma(x, out=out)
    pole = (x < 0) & (x == bare.floor(x))
    if np.any(pole):
        x = np.atleast_1d(x)[np.atleast_1d(pole)].astype(out.dtype)
        sine = np.sin(out.dtype.type(pi) * x)
        np.atleast_1d(out)[np.atleast_1d(pole)] = out.dtype.type(pi * pi) / (sine * sine)


def polygamma(x: Array, n: int, *, out: Array) -> None:
    """The n-th derivative of digamma."""
    if n == 0:
        digamma(x, out=out)
    elif n == 1:
        trigamma(x, out=out)
    else:
        scale = float(factorial(n)) if n <= 170 else inf
        x = np.atleast_1d(np.asarray(x, np.float64))
        y = zeta64(np.full(x.shape, n + 1.0), x) * (scale if n % 2 else -scale)
        np.atleast_1d(out)[...] = y


def mvlgamma(x: Array, p: int, *, out: Array) -> None:
    """log of the multivariate gamma function of dimension p."""
    x = np.atleast_1d(np.asarray(x, np.float64))
    y = lgamma64(x)
    y = y + 0.25 * p * (p - 1) * log(pi)
    for j in range(1, p):
        y += lgamma64(x - 0.5 * j)
    np.atleast_1d(out)[...] = y


lgamma = kernel(lgamma64)
digamma = kernel(digamma64)
_trigamma = kernel(trigamma64)
zeta = kernel(zeta64)
