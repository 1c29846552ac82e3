"""Distances between all rows: cdist and pdist, block by block, so that no array of all differences
is ever made.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import no_kernel, same_scalar_type
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import shaping
from skimp._kernels.bare import einsum
from skimp._ops import batching
from skimp._ops.linalg.matmul import matmul
from skimp._ops.meta import nn as shapes
from skimp._ops.shape.joining import cat

_BLOCK = 1 << 16  # differences at a time
_BY_PRODUCT = 25  # rows from which euclidean distances are taken from a matrix product
_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


def _norms(differences: Array, p: float) -> Any:
    """The p-norms along the last dim; `differences` is overwritten."""
    if p == 2:
        return np.sqrt(einsum("...i,...i->...", differences, differences))
    np.abs(differences, out=differences)
    if p == 0:
        return np.not_equal(differences, 0).sum(-1)
    if p == 1:
        return differences.sum(-1)
    if math.isinf(p):
        return differences.max(-1, initial=0)
    kind = differences.dtype.type
    np.power(differences, kind(p), out=differences)
    return np.power(differences.sum(-1), kind(1 / p))


def _distances(x: Array, y: Array, p: float, into: Array) -> None:
    """All distances between rows of x (n, d) and of y (m, d)."""
    width = max(1, x.shape[1])
    columns = max(1, min(len(y), _BLOCK // width))
    rows = max(1, _BLOCK // (columns * width))
    for i in range(0, len(x), rows):
        for j in range(0, len(y), columns):
            block = x[i : i + rows, None, :] - y[None, j : j + columns, :]
            into[i : i + rows, j : j + columns] = _norms(block, p)


# -- derivatives: pointwise and reductions, which are computed without their intermediates ---------


def _rows_back(g: Tensor, x: Tensor, y: Tensor, distances: Tensor, p: float) -> Any:
    """The gradient of x: sums over y of g * d|x - y|_p / dx. Nothing is divided by a distance of 0,
    or its own gradient would be nan.
    """
    if p == 0:
        return x.new_zeros(tuple(x.shape))
    if p == 2:
        nothing = distances == 0
        ratio = (g / distances.masked_fill(nothing, 1)).masked_fill(nothing, 0)
        return (ratio.sum(-1, keepdim=True) * x - matmul(ratio, y)).contiguous()
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    g, distances = g.unsqueeze(-1), distances.unsqueeze(-1)
    if p == 1:
        return (g * difference.sign()).sum(-2)
    if math.isinf(p):
        return (g * difference.sign() * (difference.abs() == distances)).sum(-2)
    size = difference.abs().masked_fill(difference == 0, 1)  # whose sign is 0
    slope = difference.sign() * (size / distances.masked_fill(distances == 0, 1)).pow(p - 1)
    return (g * slope).sum(-2)


_CDIST = Rule(
    "CdistBackward0",
    x1=lambda g, x1, x2, p, result: _rows_back(g, x1, x2, result, p),
    x2=lambda g, x1, x2, p, result: _rows_back(g.mT, x2, x1, result.mT, p),
)


@hidden(rule=_CDIST, batch=batching.dims.MATRICES, meta=shapes.cdist)
def _cdist(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    batch = layouts.broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    made, into = blank((*batch, x1.shape[-2], x2.shape[-2]), x1._dtype, None, (x1, x2))
    a = shaping.broadcast(x1._skimp_array(), (*batch, *x1.shape[-2:]))
    b = shaping.broadcast(x2._skimp_array(), (*batch, *x2.shape[-2:]))
    for where in np.ndindex(*batch):
        _distances(a[where], b[where], p, into[where])
    return made


def _euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(|a|^2 - 2ab + |b|^2) by one product: PyTorch's for many rows, with its rounding."""
    norms = [t.pow(2).sum(-1, keepdim=True) for t in (x1, x2)]
    left = cat([x1 * -2, norms[0], norms[0].detach() * 0 + 1], -1)
    right = cat([x2, norms[1].detach() * 0 + 1, norms[1]], -1)
    return matmul(left, right.mT).clamp_min(0).sqrt()


def _check_rows(name: str, t: Tensor, word: str) -> None:
    if not t._dtype.is_floating_point:
        kind = promotion.scalar_type_name(t._dtype)
        raise RuntimeError(f"{name} only supports floating-point dtypes, {word} got: {kind}")
    if t._dtype in dtypes.HALVES:
        raise no_kernel(name, t._dtype)


def _small_cdist(x1: Any, x2: Any, p: Any = 2.0, compute_mode: Any = _MODES[0]) -> Tensor | None:
    x, y = x1._np, x2._np if type(x2) is Tensor else None
    if x is None or y is None or x1._dtype is not x2._dtype or compute_mode != _MODES[0]:
        return None
    if type(p) not in (int, float) or p != 2 or x1._dtype not in dtypes.FLOATING:
        return None
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        return None
    if max(len(x), len(y)) > _BY_PRODUCT or not 0 < x.size * len(y) <= _BLOCK:
        return None
    return fresh(_norms(x[:, None, :] - y[None], 2), x1._dtype)


@general(method=False, autocast="float32", fast=_small_cdist, fast_rule=_CDIST)
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norm distance between each row of x1 and each row of x2, batch by batch.

    Shape: (..., P, M) and (..., R, M), whose batches broadcast; the result is (..., P, R).
    """
    for word, t in (("X1", x1), ("X2", x2)):
        if t.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {word} got: {t.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}"
        )
    _check_rows("cdist", x1, "X1")
    _check_rows("cdist", x2, "X2")
    if not p >= 0:
        raise RuntimeError("cdist only supports non-negative p values")
    same_scalar_type(x1, x2)
    if compute_mode is not None and compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    layouts.broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    many = max(x1.shape[-2], x2.shape[-2]) > _BY_PRODUCT and compute_mode in (None, _MODES[0])
    some = 0 not in (x1.shape[-2], x2.shape[-2], x1.shape[-1])
    if p == 2 and some and (many or compute_mode == _MODES[1]):
        return _euclidean(x1, x2)
    return _cdist(x1, x2, float(p))


# -- one set of rows ------------------------------------------------------------------------------


def _pdist_back(g: Tensor, input: Tensor, result: Tensor, p: float) -> Any:
    """Both triangles of a symmetric matrix, then as cdist."""
    n = input.shape[0]
    where = tuple([fresh(i.astype(np.int64), dtypes.int64) for i in np.triu_indices(n, 1)])
    full = []
    for v in (g, result):
        half = v.new_zeros((n, n)).index_put(where, v)
        full.append(half + half.t())
    return _rows_back(full[0], input, input, full[1], p)


@hidden(rule=Rule("PdistBackward0", input=_pdist_back), meta=shapes.pdist)
def _pdist(input: Tensor, p: float) -> Tensor:
    n = input.shape[0]
    made, into = blank((n * (n - 1) // 2,), input._dtype)
    x = input._skimp_array()
    step = max(1, _BLOCK // max(1, n))
    start = 0
    for i in range(0, n, step):
        rows = x[i : i + step]
        block = np.empty((len(rows), n - i), x.dtype)
        _distances(rows, x[i:], p, block)
        later = block[~np.tri(len(rows), n - i, dtype=bool)]
        into[start : start + later.size] = later
        start += later.size
    return made


@general(method=False, namespaces=("", "nn.functional"))
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distance between every two rows: the upper triangle of cdist(input, input),
    flattened.

    Shape: (n, d); the result (n (n - 1) / 2,).
    Dtypes: float32 and float64.
    Raises: RuntimeError for other numbers of dims or a negative p.
    """
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    _check_rows("pdist", input, "X1")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    return _pdist(input, float(p))


SAYS = """\
Dtypes: floating point.
Raises: RuntimeError for other dtypes and for sizes that don't fit."""
