"""Sums over the channels, or groups of them, of few elements that are no rows: what batch_norm and
group_norm need, with the bits that ops give.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.eval import reducers
from skimp._engine.eval.reduce import Geometry, geometry, of_units
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array
from skimp._kernels import bare
from skimp._kernels.pointwise import rsqrt
from skimp._ops.nn.channel_sums import beside

_BRIEF: Final = 1 << 15  # elements of which arrays of their own cost less than a plan
_VARIANCE: Final = reducers.var(0)


def few(t: Any, like: Any) -> Array | None:
    """The elements of a small tensor of the type and shape of `like`, row-major or one number
    expanded, whose channels are no rows; None for any other."""
    a: Array | None = t._np
    if a is None or t._dtype is not like._dtype or t._dtype not in dtypes.FLOATING:
        return None
    if a.ndim < 2 or not (a.flags.c_contiguous or not any(a.strides)):
        return None
    return a if is_few(a) else None


def is_few(a: Array) -> bool:
    """Whether a row-major array is so small that one look at it gives its channels' sums."""
    return 0 < a.size <= _BRIEF and _cut(a.shape).alone


@lru_cache(1024)
def _cut(shape: tuple[int, ...]) -> Geometry:
    return geometry(shape, (0, *range(2, len(shape))))


@lru_cache(1024)
def _cut_of_groups(shape: tuple[int, ...]) -> Geometry:
    return geometry(shape, (2, 3))


def moments_of_few(x: Array) -> tuple[Array, Array]:
    """Mean and biased variance of each channel, as the ops `mean` and `var` give them."""
    cut = _cut(x.shape)
    if cut.direct:
        block = x.reshape(cut.groups, cut.rows, cut.columns)
        mean, squares = state = _VARIANCE.first(block, 0)
        var = _VARIANCE.value(state, cut.rows)
        if squares.dtype == x.dtype:  # else they were out of its range
            return mean.reshape(-1), var.reshape(-1)
    else:
        var = of_units(x, cut, _VARIANCE)
    mean = of_units(x, cut, reducers.MEAN)
    return mean.reshape(-1).astype(x.dtype), var.reshape(-1).astype(x.dtype)


def _sum_of_few(x: Array) -> Array:
    """The sum of each channel, as the op `sum` gives it."""
    cut = _cut(x.shape)
    total = of_units(np.ascontiguousarray(x), cut, reducers.SUM)
    return total.reshape(-1).astype(x.dtype, copy=False)


def back_of_few(
    g: Array, x: Array, mean: Array, rstd: Array, weight: Array | None
) -> tuple[Array, Array, Array]:
    """The gradients of input, weight and bias, in the steps in which the ops take them."""
    middle, scale = beside(x, (mean, rstd))
    n = x.size // x.shape[1]
    xhat = x - middle
    np.multiply(xhat, scale, out=xhat)
    apart = g * xhat
    dw, db = _sum_of_few(apart), _sum_of_few(g)
    gw, total, along = g, db, dw
    if weight is not None:
        gw = g * beside(x, (weight,))[0]
        along = _sum_of_few(np.multiply(gw, xhat, out=apart))
        total = _sum_of_few(gw)
    total, along = beside(x, (total / n, along / n))
    dx = np.subtract(gw, total, out=apart)
    np.subtract(dx, np.multiply(xhat, along, out=xhat), out=dx)
    return np.multiply(dx, scale, out=dx), dw, db


def back_of_groups(
    g: Array, x: Array, mean: Array, rstd: Array, weight: Array | None
) -> tuple[Array, Array, Array]:
    """The same for groups of the channels of each image, whose mean and one over whose deviation
    are (n, groups, 1, 1)."""
    n, groups = mean.shape[:2]
    shape = x.shape
    whole = n, groups, shape[1] // groups, -1
    rows = x.reshape(whole)
    gw = grad = np.ascontiguousarray(g).reshape(whole)
    xhat = np.subtract(rows, mean)
    np.multiply(xhat, rstd, out=xhat)
    apart = np.multiply(grad, xhat)
    dw, db = _sum_of_few(apart.reshape(shape)), _sum_of_few(grad.reshape(shape))
    if weight is not None:
        gw = np.multiply(grad, weight.reshape(groups, -1, 1))
        np.multiply(gw, xhat, out=apart)
    cut, many = _cut_of_groups(xhat.shape), bare.number(x.size // mean.size, x.dtype)
    along, total = [
        np.divide(of_units(each, cut, reducers.SUM), many).reshape(mean.shape)
        for each in (apart, gw)
    ]
    dx = np.subtract(gw, total, out=apart)
    np.subtract(dx, np.multiply(xhat, along, out=xhat), out=dx)
    return np.multiply(dx, rstd, out=dx).reshape(shape), dw, db


def over_deviation(var: Array, eps: float) -> Array:
    """One over the deviation, of a variance that is given."""
    scale: Array = np.add(var, bare.number(eps, var.dtype))
    rsqrt(scale, out=scale)
    return scale


def back_of_line(
    g: Array, x: Array, mean: Array, var: Array, weight: Array | None, eps: float, affine: bool
) -> tuple[Array | None, ...]:
    """The same where mean and variance are given, as in evaluation; those of weight and bias only
    if they are asked for (`affine`)."""
    scale = over_deviation(var, eps)
    slope = scale if weight is None else np.multiply(scale, weight)
    dx = np.multiply(g, beside(x, (slope,))[0], order="C")
    if not affine:
        return dx, None, None
    middle, scale = beside(x, (mean, scale))
    xhat = np.subtract(x, middle)
    np.multiply(xhat, scale, out=xhat)
    return dx, _sum_of_few(np.multiply(g, xhat, out=xhat)), _sum_of_few(g)
