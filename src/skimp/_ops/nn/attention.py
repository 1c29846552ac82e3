"""scaled_dot_product_attention, in row blocks both ways: it keeps q, k, v, the result and one
number per row."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import NAMESPACES, export, hidden
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Array, Tensor, as_it_lies, fresh
from skimp._kernels import attention as attend, bare, shaping
from skimp._kernels.attention import Attention
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.dropout import drawn_mask, grown, kept_factors, kept_mask
from skimp._ops.reduce.safe_softmax import _safe_softmax

_tuple: Any = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's
Ints = tuple[int, ...]


def described(
    dtype: dtypes.dtype, whole: Ints, mask: Any, causal: bool, scale: float, kept: Any, grow: float
) -> Attention:
    """What the kernel is told, for scores of the shape `whole`."""
    work = dtypes.accumulator(dtype).np
    added = None
    if mask is not None:
        array = mask._skimp_array()
        added = shaping.broadcast(
            array if array.dtype == bool else array.astype(work, copy=False), whole
        )
    return Attention(
        scale, causal, added, None if kept is None else kept._skimp_array(), grow, work
    )


def _whole(query: Any, key: Any) -> Ints:
    """The shape of the scores."""
    return (*shape_of(query)[:-1], shape_of(key)[-2])


def _result(query: Any, key: Any, value: Any, kept: Any) -> tuple[Tensor, Array]:
    """Blank, where PyTorch's lies; a small one is made by NumPy."""
    strides = shapes.attention_strides(query, key, value, kept)
    a = query._np
    if a is None or strides is None or 0 in a.strides:
        shape = (*shape_of(query)[:-1], shape_of(value)[-1])
        return blank(shape, query._dtype, strides, (query, key, value))
    array = bare.empty_like(a)
    made = as_it_lies(array, query._dtype)
    if 1 in a.shape:  # of which NumPy's strides may be any
        made._skimp_layout = _tuple(Layout, (a.shape, strides, 0))
    return made, array


def _back(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    causal: bool,
    scale: float,
    kept: Any,
    grow: float,
    result0: Any,
    result1: Any,
) -> Any:
    if modes.state.grad or g._hollow:
        return in_ops_back(g, query, key, value, mask, causal, scale, kept, grow)
    turned = shapes.in_one_pass(query, key, value, kept)
    kept_arrays = [t._skimp_array() for t in (query, key, value, result0, result1)]
    gradient = g._skimp_array()
    made = [_gradient_of(t, turned) for t in (query, key, value)]
    a = described(query._dtype, _whole(query, key), mask, causal, scale, kept, grow)
    attend.backward(gradient, tuple(kept_arrays), tuple([into for _, into in made]), a)
    return tuple([t for t, _ in made])


def _gradient_of(t: Any, turned: bool) -> tuple[Tensor, Array]:
    """(batch, heads, rows, e) lies as (batch, rows, heads, e), in which a projection's rows lie."""
    shape = shape_of(t)
    return blank(shape, t._dtype, shapes.heads_inside(shape) if turned else None)


def in_ops_back(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    causal: bool,
    scale: float,
    kept: Any,
    grow: float,
) -> Any:
    """The same in ops, for derivatives of the derivative."""
    p = _weights(query, key, mask, causal, scale)
    noise = None if kept is None else kept_factors(kept, grow, p._dtype)
    dropped = p if noise is None else p * noise
    dp = g.matmul(value.transpose(-1, -2))
    dp = dp if noise is None else dp * noise
    ds = p * (dp - (dp * p).sum(-1, True)) * scale
    return (ds.matmul(key), ds.transpose(-1, -2).matmul(query), dropped.transpose(-1, -2).matmul(g))


def _weights(query: Any, key: Any, mask: Any, causal: bool, scale: float) -> Any:
    """The whole matrix of weights, in ops."""
    scores = (query * scale).matmul(key.transpose(-1, -2))
    if causal:
        seen = np.tri(query.shape[-2], key.shape[-2], dtype=bool)
        scores = scores.masked_fill(meta.beside(~seen, dtypes.bool, query), -math.inf)
    if mask is not None:
        hidden = mask._dtype is dtypes.bool
        scores = scores.masked_fill(mask.logical_not(), -math.inf) if hidden else scores + mask
    return _safe_softmax(scores, -1)


_ATTENTION = Rule(
    "ScaledDotProductFlashAttentionForCpuBackward0",
    {
        (
            "query",
            "key",
            "value",
        ): lambda g0, query, key, value, mask, causal, scale, kept, grow, result0, result1: _back(
            g0, query, key, value, mask, causal, scale, kept, grow, result0, result1
        )
    },
    at_once=True,
)
_RECORDED = recording(
    _ATTENTION, ("query", "key", "value", "mask", "causal", "scale", "kept", "grow"), (1,)
)


@hidden(nondiff=(1,), rule=_ATTENTION, batch=batching.layers.attention_rule, meta=shapes.attention)
def _attention(
    query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float, kept: Any, grow: float
) -> Any:
    """(result, each row's logsumexp)."""
    rows = shape_of(query)[:-1]
    result, into = _result(query, key, value, kept)
    acc = dtypes.accumulator(query._dtype)
    lse, level = blank((*rows, 1), acc)
    a = described(query._dtype, _whole(query, key), mask, causal, scale, kept, grow)
    if level.size:  # also where values have no width
        attend.forward(
            query._skimp_array(), key._skimp_array(), value._skimp_array(), into, level, a
        )
    return result, lse


# -- the public function --------------------------------------------------------------------------


def _check(query: Any, key: Any, value: Any, mask: Any) -> None:
    if min([len(shape_of(t)) for t in (query, key, value)]) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got "
            f"query.dim(): {query.ndim}, "
            f"key.dim(): {key.ndim} and value.dim(): {value.ndim} instead."
        )
    if not query._dtype is key._dtype is value._dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query._dtype} key.dtype: {key._dtype} and value.dtype: {value._dtype} instead."
        )
    of_key = shape_of(key)
    if shape_of(query)[-1] != of_key[-1] or of_key[-2] != shape_of(value)[-2]:
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"{[*key.shape[:-2], query.shape[-1]]} but got: {[*key.shape[:-2], key.shape[-1]]} "
            f"(query {list(query.shape)}, key {list(key.shape)}, value {list(value.shape)})."
        )
    if mask is not None and mask._dtype not in (dtypes.bool, query._dtype, dtypes.float32):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {mask._dtype} and  query.dtype: {query._dtype} instead."
        )


def _check_mask(
    query: Any, key: Any, value: Any, mask: Any, p: float, causal: bool, grouped: bool
) -> None:
    have = len(shape_of(mask))
    if have < 2 and _looks_at_rows(query, key, value, mask, p, grouped):
        raise IndexError(
            "Dimension out of range (expected to be in range of [-1, 0], but got -2)"
            if have
            else "Dimension specified as -2 but tensor has no dimensions"
        )
    if causal and not _takes_both(query, key, value, mask, p, grouped):
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True"
        )


KERNELS: Final = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}
"""Which kernels a program lets PyTorch choose among. Here they all compute the same; on a CPU there
it is flash or plain products, which take other masks."""


def _looks_at_rows(query: Any, key: Any, value: Any, mask: Any, p: float, grouped: bool) -> bool:
    """Whether PyTorch, which chooses among its kernels, asks the mask for the size of a dim that
    one of less than two has not."""
    q, k, v = [shape_of(t) for t in (query, key, value)]
    return (
        (KERNELS["flash"] or not KERNELS["math"])
        and len(q) == len(k) == len(v) == 4
        and not query._hollow
        and 0 not in (*q, *k, *v)
        and q[0] == k[0] == v[0]
        and k[1] == v[1]
        and (grouped or q[1] == k[1])
        and not p
        and not mask.requires_grad
    )


def _takes_both(query: Any, key: Any, value: Any, mask: Any, p: float, grouped: bool) -> bool:
    """Whether PyTorch's kernel for a CPU, which takes a mask beside is_causal, takes this call."""
    q, k, v = [shape_of(t) for t in (query, key, value)]
    return (
        (KERNELS["flash"] or not KERNELS["math"])
        and len(q) == len(k) == len(v) == 4
        and q[-1] == v[-1]
        and k == v
        and q[0] == k[0]
        and (grouped or q[1] == k[1])
        and len(shape_of(mask)) in (2, 4)
        and not p
        and not (modes.state.grad and mask.requires_grad)
        and all([t.stride(-1) == 1 for t in (query, key, value)])
    )


def _grouped(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """Query heads in groups that share a head of key and value, which is expanded and not
    copied."""
    heads, of_key, of_value = query.shape[-3], key.shape[-3], value.shape[-3]
    if of_key != of_value or heads % of_key:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query, but got "
            f"{of_key}, {of_value} and {heads}"
        )
    each = heads // of_key
    query = query.unflatten(-3, (of_key, each))

    def for_each_head(t: Any) -> Any:
        t = t.unsqueeze(-3)
        return t.expand((*t.shape[:-3], each, *t.shape[-2:]))

    return query, for_each_head(key), for_each_head(value)


def _common(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """The three with the same leading dims, at least one."""
    own = shape_of(query)[:-2]
    if own and own == shape_of(key)[:-2] == shape_of(value)[:-2]:
        return query, key, value
    lead = layouts.broadcast_shapes(*[tuple(t.shape[:-2]) for t in (query, key, value)])
    return tuple([t.expand((*(lead or (1,)), *t.shape[-2:])) for t in (query, key, value)])


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query @ key.T * scale + mask) @ value. A large matrix of weights is never written as
    a whole.

    Shape: query (..., l, e), key (..., s, e), value (..., s, v); mask broadcasts to (..., l, s);
    the result (..., l, v).
    Dtypes: floating point, alike; a mask of bools (true: seen) or of numbers to add.
    Raises: RuntimeError for shapes and dtypes that don't fit, or a mask beside is_causal where
        PyTorch's kernel for a CPU does not take both (four dims and no dropout).
    Memory: a new tensor; blocks of weights are computed again in backward.
    Source: Dao et al., 2022 (the blocks).
    """
    _check(query, key, value, attn_mask)
    if attn_mask is not None:
        _check_mask(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    own = shape_of(query)
    factor = 1.0 / math.sqrt(own[-1] or 1) if scale is None else float(scale)
    shape = (*own[:-1], shape_of(value)[-1])
    grouped = enable_gqa and len(own) > 2 and own[-3] != key.shape[-3]
    if grouped:
        query, key, value = _grouped(query, key, value)
        if attn_mask is not None and attn_mask.ndim > 2:
            attn_mask = (
                attn_mask.unflatten(-3, query.shape[-4:-2])
                if attn_mask.shape[-3] != 1
                else attn_mask.unsqueeze(-3)
            )
    flat = len(own) == 2
    query, key, value = _common(query, key, value)
    kept, grow = dropping(_whole(query, key), dropout_p, query)
    wanted = attn_mask is not None and modes.state.grad and attn_mask.requires_grad
    if wanted or not query._dtype.is_floating_point:
        result = _in_ops(query, key, value, attn_mask, is_causal, factor, kept, grow)
    else:
        result = _attention(query, key, value, attn_mask, bool(is_causal), factor, kept, grow)[0]
    if grouped:
        result = result.reshape(shape)
    return result.squeeze(0) if flat else result


def _in_ops(
    query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float, kept: Any, grow: float
) -> Any:
    """The whole matrix after all: somebody wants the mask's gradient. Half precision goes through
    float32."""
    dtype = query._dtype
    if dtype in dtypes.HALVES:
        query, key, value = [t.to(dtypes.float32) for t in (query, key, value)]
    p = _weights(query, key, mask, causal, scale)
    result = (p if kept is None else p * kept_factors(kept, grow, p._dtype)).matmul(value)
    return result if result._dtype is dtype else result.to(dtype)


def dropping(whole: Ints, p: float, like: Any) -> tuple[Any, float]:
    """Which weights, of this shape, stay: drawn as PyTorch's dropout of the whole matrix would,
    one byte for each; and what those grow by. `like`: a query, which may have no bytes."""
    if not p:
        return None, 1.0
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 1.0:  # nothing is drawn then
        return NAMESPACES[""]["zeros"](whole, dtype=dtypes.bool), 0.0
    grow = grown(p, like._dtype)
    if not like._hollow:
        return drawn_mask(whole, p), grow
    return kept_mask(like.new_empty((1,)).expand(whole), p, False), grow


def _small(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Of small tensors whose shapes go together as they are."""
    if dropout_p or enable_gqa or (attn_mask is not None and is_causal):
        return None
    if type(key) not in ORDINARY or type(value) not in ORDINARY:
        return None
    q, k, v = query._np, key._np, value._np
    if q is None or k is None or v is None or not query._dtype is key._dtype is value._dtype:
        return None
    if query._dtype not in dtypes.FLOATING:
        return None
    if q.ndim < 3 or not (q.size and k.size):
        return None
    if q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1]:
        return None
    mask = None
    if attn_mask is not None:
        mask = _small_mask(attn_mask, query._dtype, (*q.shape[:-1], k.shape[-2]))
        if mask is None:
            return None
    factor = 1.0 / math.sqrt(q.shape[-1] or 1) if scale is None else float(scale)
    causal = bool(is_causal)
    recorded = modes.state.grad and (query._rg or key._rg or value._rg)
    result, into = _result(query, key, value, None)
    level = np.empty((*q.shape[:-1], 1), q.dtype) if recorded else None
    how = _tuple(Attention, (factor, causal, mask, None, 1.0, q.dtype))
    attend.forward(q, k, v, into, level, how)
    if level is not None:
        made = result, fresh(level, query._dtype)
        _RECORDED.record(made, query, key, value, attn_mask, causal, factor, None, 1.0)
    return result


def _small_mask(mask: Any, dtype: dtypes.dtype, whole: Ints) -> Array | None:
    """A small mask for scores of this shape, of bools or of their type, whose gradient nobody
    wants; None for any other.
    """
    if type(mask) not in ORDINARY or (mask._rg and modes.state.grad):
        return None
    a = mask._np
    if a is None or mask._dtype not in (dtypes.bool, dtype):
        return None
    if a.ndim < 2 and len(whole) == 4:  # the general way knows which are refused
        return None
    try:
        return shaping.broadcast(a, whole)
    except ValueError:  # the general way refuses it
        return None


export(
    "scaled_dot_product_attention",
    scaled_dot_product_attention,
    ("nn.functional",),
    method=False,
    fast=_small,
    autocast="lower",
)
