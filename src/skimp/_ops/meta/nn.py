"""Layers and losses: results by the sizes of their arguments."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.formats import suggested_strides
from skimp._engine.tensor.meta import empty, like
from skimp._engine.tensor.tensor import Tensor

Ints = tuple[int, ...]


# -- windows --------------------------------------------------------------------------------------


def _planes(like: Tensor, sizes: Ints, dtype: dtypes.dtype | None = None) -> Tensor:
    shape = (*like.shape[: like.ndim - len(sizes)], *sizes)
    batched = len(shape) == len(sizes) + 2
    return empty(shape, dtype or like._dtype, suggested_strides(like, shape) if batched else None)


def pooled(input: Tensor, pool: Any, *_: Any) -> Tensor:
    return _planes(input, pool.out)


def pooled_with_taps(input: Tensor, pool: Any) -> tuple[Tensor, Tensor]:
    return pooled(input, pool), _planes(input, pool.out, dtypes.int32)


def averaged(input: Tensor, pool: Any, *_: Any) -> Tensor:
    return _averages(input, pool.out)


def unpooled(input: Tensor, pool: Any, *_: Any) -> Tensor:
    return _averages(input, pool.size)


def _averages(like: Tensor, sizes: Ints) -> Tensor:
    if len(sizes) == 2:
        return _planes(like, sizes)
    return empty((*like.shape[: like.ndim - len(sizes)], *sizes), like._dtype)


def spread(grad: Tensor, taps: Tensor, pool: Any) -> Tensor:
    return _planes(taps, pool.size, grad._dtype)


def picked(input: Tensor, taps: Tensor, pool: Any) -> Tensor:
    return _planes(taps, pool.out, input._dtype)


def places(taps: Tensor, pool: Any) -> Tensor:
    return _planes(taps, pool.out, dtypes.int64)


def unfold(input: Tensor, pool: Any) -> Tensor:
    n, c = input.shape[:2]
    return empty((n, c * len(pool.taps), math.prod(pool.out)), input._dtype)


def fold(input: Tensor, pool: Any) -> Tensor:
    n, columns = input.shape[:2]
    return empty((n, columns // len(pool.taps), *pool.size), input._dtype)


def resample(input: Tensor, dim: int, where: Any, *_: Any) -> Tensor:
    shape = tuple(input.shape)
    shape = (*shape[:dim], len(where), *shape[dim + 1 :])
    return empty(shape, input._dtype, suggested_strides(input, shape))


def resample_back(
    input: Tensor, dim: int, where: Any, weights: Any, last: bool, size: int
) -> Tensor:
    shape = tuple(input.shape)
    shape = (*shape[:dim], size, *shape[dim + 1 :])
    strides = layouts.channels_last_strides(shape) if last else suggested_strides(input, shape)
    return empty(shape, input._dtype, strides)


# -- norms ----------------------------------------------------------------------------------------


def _accumulated(t: Tensor) -> dtypes.dtype:
    return dtypes.float32 if t._dtype.itemsize == 2 else t._dtype


def layer_norm(input: Tensor, normalized_shape: Any, *_: Any) -> Any:
    lead = tuple(input.shape[: input.ndim - len(normalized_shape)])
    kept = (*lead, *(1,) * len(normalized_shape))
    acc = _accumulated(input)
    return empty(input.shape, input._dtype), empty(kept, acc), empty(kept, acc)


def rms_norm(*args: Any) -> Any:
    return layer_norm(*args)[::2]


def batch_norm(
    input: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    *_: Any,
) -> Any:
    if not training:
        return like(input), empty((0,), input._dtype), empty((0,), input._dtype)
    for t in (running_mean, running_var):
        if t is not None:
            t._skimp_bump()
    acc = _accumulated(input)
    return like(input), empty((input.shape[1],), acc), empty((input.shape[1],), acc)


# -- the rest -------------------------------------------------------------------------------------


def heads_inside(shape: Ints) -> Ints:
    """The strides of (batch, heads, rows, e) where heads lie inside rows."""
    _, heads, rows, e = shape
    return (heads * rows * e, e, heads * e, 1)


def in_one_pass(query: Tensor, key: Tensor, value: Tensor, kept: Tensor | None) -> bool:
    """Whether PyTorch has the kernel whose results lie as the query and whose gradients have heads
    inside rows; else it multiplies matrices, and all are row-major.
    """
    if kept is not None:
        return False
    q, k, v = query._np, key._np, value._np
    if q is not None and k is not None and v is not None and q.ndim == 4:
        runs = q.strides[-1] == k.strides[-1] == v.strides[-1] == q.itemsize
        if runs and q.shape[-1] == v.shape[-1]:  # without their layouts, which new ones lack
            return True
    shape, strides, _ = query._skimp_layout or query._skimp_layout_of()
    if len(shape) != 4 or strides[-1] != 1:
        return False
    own, steps, _ = value._skimp_layout or value._skimp_layout_of()
    if shape[-1] != own[-1] or steps[-1] != 1:
        return False
    return (key._skimp_layout or key._skimp_layout_of())[1][-1] == 1


def attention_strides(
    query: Tensor, key: Tensor, value: Tensor, kept: Tensor | None
) -> Ints | None:
    if not in_one_pass(query, key, value, kept):
        return None
    return _strides_like(query._skimp_layout or query._skimp_layout_of())


_strides_like = lru_cache(maxsize=256)(layouts.empty_like_strides)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    causal: bool,
    scale: float,
    kept: Tensor | None,
    *_: Any,
) -> Any:
    strides = attention_strides(query, key, value, kept)
    result = empty((*query.shape[:-1], value.shape[-1]), query._dtype, strides)
    return result, empty((*query.shape[:-1], 1), _accumulated(query))


def table(grad_output: Tensor, indices: Tensor, num_weights: int, *_: Any) -> Tensor:
    return empty((num_weights, grad_output.shape[-1]), grad_output._dtype)


def cross_entropy(input: Tensor, target: Tensor, weight: Any, reduction: str, *_: Any) -> Any:
    dim = 1 if input.ndim > 1 else 0
    rows = tuple([1 if d == dim else n for d, n in enumerate(input.shape)])
    loss = empty(target.shape if reduction == "none" else (), input._dtype)
    return loss, empty(rows, _accumulated(input))


def nll(input: Tensor, target: Tensor, shares: Any, valid: Any) -> Tensor:
    return empty(target.shape, input._dtype)


def cdist(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    batch = layouts.broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    return empty((*batch, x1.shape[-2], x2.shape[-2]), x1._dtype)


def pdist(input: Tensor, p: float) -> Tensor:
    n = input.shape[0]
    return empty((n * (n - 1) // 2,), input._dtype)


def lstm_layer(input: Tensor, h0: Tensor, *_: Any) -> Any:
    time, batch = input.shape[:2]
    n, d = h0.shape[1], input._dtype
    each = (time, batch, n)
    return empty(each, d), empty((batch, n), d), empty((time, 4, batch, n), d)


def rnn_layer(input: Tensor, h0: Tensor, *_: Any) -> Any:
    return empty((*input.shape[:-2], *h0.shape), input._dtype)


def gru_layer(input: Tensor, h0: Tensor, *_: Any) -> Any:
    lead, d = tuple(input.shape[:-2]), input._dtype
    each = (*lead, *h0.shape)
    return empty(each, d), empty((*lead, 3, *h0.shape), d), empty(each, d)


def lstm_step(input: Tensor, h0: Tensor, c0: Tensor, *_: Any) -> Any:
    d = input._dtype
    return empty(c0.shape, d), empty(c0.shape, d), empty((4, *c0.shape), d)
