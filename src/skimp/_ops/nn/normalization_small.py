"""layer_norm of small tensors: what `normalization.py` does block by block, in one block."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import normalization_onednn
from skimp._kernels.scratch import beside_rows, less_column, row_products, row_sums
from skimp._kernels.threads import quietly
from skimp._ops.reduce.softmax import SMALL


def as_shape(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (int(value),)


def _small_rows(t: Any, dtype: Any) -> Array | None:
    """A small tensor of the type, row by row; None for any other."""
    a = t._np
    if a is None or t._dtype is not dtype or not a.flags.c_contiguous or not 0 < a.size < SMALL:
        return None
    return a.reshape(-1, a.shape[-1]) if a.ndim else None


def small_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    found = small_parts(input, normalized_shape, weight, bias, eps)
    if found is None:
        return None
    shape, dtype = input._np.shape, input._dtype
    y, mean, rstd = found
    if len(shape) != 2:
        ones = (*shape[:-1], 1)
        y, mean, rstd = y.reshape(shape), mean.reshape(ones), rstd.reshape(ones)
    return fresh(y, dtype), fresh(mean, dtype), fresh(rstd, dtype)


def small_parts(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The normalised rows, their means, and one over their deviations."""
    dtype = input._dtype
    x = _small_rows(input, dtype)
    if x is None or dtype not in dtypes.FLOATING or normalized_shape != x.shape[1:]:
        return None
    w = b = None
    if weight is not None:
        w = weight._np
        if w is None or weight._dtype is not dtype or w.shape != normalized_shape:
            return None
    if bias is not None:
        b = bias._np
        if b is None or bias._dtype is not dtype or b.shape != normalized_shape:
            return None
    return _normalize(x, w, b, _number(eps, x.dtype))


@lru_cache(maxsize=256)
def _number(value: float, dtype: Any) -> Array:
    return np.array(value, dtype)


def _normalize(x: Array, w: Array | None, b: Array | None, eps: Any) -> tuple[Array, Array, Array]:
    n = _number(x.shape[1], x.dtype)  # which ufuncs take sooner than a number of Python's
    if len(x) == 1:  # of one shape with the row, which spares ufuncs an iterator
        w, b = None if w is None else w[None], None if b is None else b[None]
    mean = np.divide(row_sums(x), n)
    y = less_column(x, mean)
    rstd = np.divide(row_products(y, y), n)
    rstd = np.reciprocal(np.sqrt(np.add(rstd, eps)))
    np.multiply(y, beside_rows(rstd), out=y)
    if w is not None:
        np.multiply(y, w, out=y)
    if b is not None:
        np.add(y, b, out=y)
    return y, mean, rstd


def small_norm_back(g: Any, input: Any, mean: Any, rstd: Any, weight: Any, needs: Any) -> Any:
    dtype = input._dtype
    x, grad = _small_rows(input, dtype), g._np
    if (
        x is None
        or grad is None
        or dtype not in dtypes.FLOATING
        or mean._np is None
        or rstd._np is None
    ):
        return None
    w = None if weight is None else weight._skimp_array()
    affine = "weight" in needs or "bias" in needs
    rows = np.ascontiguousarray(grad).reshape(x.shape)
    given = (rows, x, mean._np.reshape(-1, 1), rstd._np.reshape(-1, 1), w, affine)
    dx, dw, db = quietly(_normalize_back, *given)
    dx = fresh(dx.reshape(input._np.shape), dtype)
    return (dx, fresh(dw, dtype), fresh(db, dtype)) if affine else (dx, None, None)


def _normalize_back(
    g: Array, x: Array, mean: Array, rstd: Array, w: Array | None, affine: bool
) -> tuple[Any, ...]:
    if normalization_onednn.takes(x.dtype, x.size):
        made = np.empty_like(x)
        sums = normalization_onednn.backward(g, x, mean, rstd, w, affine, made)
        return made, *(sums or (None, None))
    n = x.shape[1]
    xhat = less_column(x, mean)
    np.multiply(xhat, rstd, out=xhat)
    dw = db = None
    if affine:
        dw, db = np.add.reduce(g * xhat, axis=0), np.add.reduce(g, axis=0)
    gw = g.copy() if w is None else g * w
    along = row_products(gw, xhat) / n
    mid = row_sums(gw) / n
    np.multiply(xhat, along, out=xhat)
    np.subtract(gw, xhat, out=gw)
    np.subtract(gw, mid, out=gw)
    return np.multiply(gw, rstd, out=gw), dw, db
