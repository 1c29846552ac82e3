"""layer_norm and rms_norm of small tensors: what `normalization.py` does block by block, in one
block."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.eval.reducers import add_up
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, compiled, normalization, normalization_onednn
from skimp._kernels.normalization_onednn import SEVERAL
from skimp._kernels.scratch import dense_row_sums, less_column, row_product, row_products, row_sum
from skimp._kernels.shaping import is_dense
from skimp._kernels.threads import quietly
from skimp._ops.reduce.softmax import SMALL


def as_shape(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (int(value),)


def _small_rows(t: Any, dtype: Any) -> Array | None:
    """A small tensor of the type, row by row; None for any other."""
    a = t._np
    if a is None or t._dtype is not dtype or not is_dense(a) or not 0 < a.size < SMALL:
        return None
    return a.reshape(-1, a.shape[-1]) if a.ndim else None


def small_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    found = small_parts(input, normalized_shape, weight, bias, eps)
    return found and as_tensors(found, shape_of(input), input._dtype)


def small_rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float) -> Any:
    found = small_parts(input, normalized_shape, weight, None, eps, False)
    return found and as_tensors(found, shape_of(input), input._dtype)


def as_tensors(found: Any, shape: tuple[int, ...], dtype: Any) -> tuple[Tensor, ...]:
    """The parts as tensors: the statistics with a 1 in the place of what they are of."""
    y = found[0]
    if y.ndim == 1 or y.shape != shape or found[1].ndim < y.ndim:
        ones = (*shape[:-1], 1)
        found = (y.reshape(shape), *[one.reshape(ones) for one in found[1:]])
    if len(found) == 2:
        return fresh(found[0], dtype), fresh(found[1], dtype)
    return fresh(found[0], dtype), fresh(found[1], dtype), fresh(found[2], dtype)


def small_parts(
    input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float, centre: bool = True
) -> Any:
    """The normalised rows, their means where they `centre`, and one over their deviations: of one
    row, that row and numbers.
    """
    w = b = None
    if weight is not None and (w := weight._np) is None:
        return None
    if bias is not None and (b := bias._np) is None:
        return None
    loops = compiled.loops()
    if loops is not None:
        made = loops.made_normalized(input._np, normalized_shape, w, b, eps, centre)
        if made is not None:
            return made
    dtype = input._dtype
    x = _small_rows(input, dtype)
    if x is None or dtype not in dtypes.FLOATING or normalized_shape != x.shape[1:]:
        return None
    if w is not None and (weight._dtype is not dtype or w.shape != normalized_shape):
        return None
    if b is not None and (bias._dtype is not dtype or b.shape != normalized_shape):
        return None
    if not (w is None or w.flags.c_contiguous) or not (b is None or b.flags.c_contiguous):
        return None
    if x.dtype.char == "f" and loops is not None:
        return normalization.small_forward(loops, x, w, b, eps, centre, shape_of(input))
    if len(x) == 1:
        return _normalize_one(x[0], w, b, eps, centre)
    return (_normalize if centre else _scale)(x, w, b, *_numbers(x.shape[1], eps, x.dtype))


def _normalize_one(
    x: Array, w: Array | None, b: Array | None, eps: float, centre: bool
) -> tuple[Any, ...]:
    """`_normalize`, or `_scale`, of one row: NumPy divides numbers in a sixth of the time of arrays
    of one element.
    """
    mean = row_sum(x) / x.size if centre else None
    y = np.empty(x.shape, x.dtype)
    if mean is not None:
        x = np.subtract(x, mean, out=y)
    rstd = 1 / np.sqrt(row_product(x, x) / x.size + float(eps))
    np.multiply(x, rstd, out=y)
    if w is not None:
        np.multiply(y, w, out=y)
    if b is not None:
        np.add(y, b, out=y)
    return (y, rstd) if mean is None else (y, mean, rstd)


@lru_cache(maxsize=256)
def _numbers(n: int, eps: float, dtype: Any) -> tuple[Array, Array]:
    """As ufuncs take them sooner than Python's."""
    return np.array(n, dtype), np.array(eps, dtype)


def _normalize(
    x: Array, w: Array | None, b: Array | None, n: Array, eps: Array
) -> tuple[Array, Array, Array]:
    mean = dense_row_sums(x)
    np.divide(mean, n, mean)
    y = np.subtract(x, mean)
    y, rstd = _scale(y, w, b, n, eps, y)
    return y, mean, rstd


def _scale(
    x: Array, w: Array | None, b: Array | None, n: Array, eps: Array, out: Array | None = None
) -> tuple[Array, Array]:
    """Rows over the root of their mean square, and one over that."""
    rstd = row_products(x, x)
    np.add(np.divide(rstd, n, rstd), eps, rstd)
    np.reciprocal(np.sqrt(rstd, rstd), rstd)
    y = bare.empty_like(x) if out is None else out
    if x.size >= SEVERAL and normalization_onednn.scaled(x, rstd, w, b, y):
        return y, rstd
    np.multiply(x, rstd, y)
    if w is not None:
        np.multiply(y, w, y)
    if b is not None:
        np.add(y, b, y)
    return y, rstd


def small_norm_back(g: Any, input: Any, mean: Any, rstd: Any, weight: Any, needs: Any) -> Any:
    """`mean` None: of rms_norm, whose bias there is none of."""
    dtype = input._dtype
    x, grad, deviations = _small_rows(input, dtype), g._np, rstd._np
    if x is None or grad is None or dtype not in dtypes.FLOATING or deviations is None:
        return None
    means = None
    if mean is not None:
        means = mean._np
        if means is None:
            return None
        means = means.reshape(-1, 1)
    w = None if weight is None else np.ascontiguousarray(weight._skimp_array())
    affine = "weight" in needs or "bias" in needs
    rows = np.ascontiguousarray(grad).reshape(x.shape)
    given = (rows, x, means, deviations.reshape(-1, 1), w, affine)
    dx, *sums = quietly(_normalize_back, *given)
    return (
        fresh(dx.reshape(shape_of(input)), dtype),
        *[None if one is None else fresh(one, dtype) for one in sums],
    )


def _normalize_back(
    g: Array, x: Array, mean: Array | None, rstd: Array, w: Array | None, affine: bool
) -> tuple[Any, ...]:
    centre = mean is not None
    if x.dtype.char == "f" and compiled.loops() is not None:
        made = bare.empty_like(x)
        means = rstd if mean is None else mean  # which nobody reads then
        dw, db = normalization.backward(g, x, means, rstd, w, affine, made, centre)
        return made, dw, db if centre else None
    if mean is not None and normalization_onednn.takes(x.dtype, x.size):
        made = bare.empty_like(x)
        sums = normalization_onednn.backward(g, x, mean, rstd, w, affine, made)
        return made, *(sums or (None, None))
    n = x.shape[1]
    xhat = np.multiply(x, rstd) if mean is None else less_column(x, mean)
    if mean is not None:
        np.multiply(xhat, rstd, out=xhat)
    dw = db = None
    if affine:
        dw = add_up((g * xhat)[None])[0]
        db = None if mean is None else add_up(g[None])[0]
    gw = g.copy() if w is None else g * w
    along = row_products(gw, xhat) / n
    mid = None if mean is None else dense_row_sums(gw) / n
    np.multiply(xhat, along, out=xhat)
    np.subtract(gw, xhat, out=gw)
    if mid is not None:
        np.subtract(gw, mid, out=gw)
    return np.multiply(gw, rstd, out=gw), dw, db
