"""multi_head_attention_forward: attention in several heads (Vaswani et al. 2017), its projections
included.
"""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES, export
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.linalg.matmul import matmul
from skimp._ops.nn.attention import scaled_dot_product_attention
from skimp._ops.nn.linear import linear
from skimp._ops.nn.padding import pad
from skimp._ops.shape.joining import cat


def canonical_mask(
    mask: Tensor | None,
    name: str,
    other: Tensor | None,
    other_name: str,
    target: Any,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as numbers that are added to the scores: -inf where a bool mask is True."""
    if mask is None:
        return None
    if mask.dtype is not dtypes.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if check_other and other is not None and mask.dtype != other.dtype:
        warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both "
            "instead."
        )
    if mask.is_floating_point():
        return mask
    zeros: Tensor = NAMESPACES[""]["zeros_like"](mask, dtype=target)
    return zeros.masked_fill_(mask, float("-inf"))


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, heads: int
) -> bool:
    """Whether the input is batched; refuses ranks that don't go together."""
    dims = query.dim()
    if dims not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor"
        )
    what = f"For {'batched' if dims == 3 else 'unbatched'} ({dims}-D) `query`, expected"
    if key.dim() != dims or value.dim() != dims:
        raise AssertionError(
            f"{what} `key` and `value` to be {dims}-D but found {key.dim()}-D and {value.dim()}-D "
            "tensors respectively"
        )
    if padding is not None and padding.dim() != dims - 1:
        raise AssertionError(
            f"{what} `key_padding_mask` to be `None` or {dims - 1}-D but found {padding.dim()}-D "
            "tensor instead"
        )
    if mask is not None and mask.dim() not in (2, 3):
        raise AssertionError(
            f"{what} `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D tensor instead"
        )
    if dims == 2 and mask is not None and mask.dim() == 3:
        expected = (heads, query.shape[0], key.shape[0])
        if tuple(mask.shape) != expected:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {expected} but got {mask.shape}"
            )
    return dims == 3


def _mask_by_head(mask: Tensor, batch: int, heads: int, rows: int, columns: int) -> Tensor:
    """A mask as (batch or 1, heads or 1, rows, columns)."""
    if mask.dim() == 2:
        if tuple(mask.shape) != (rows, columns):
            raise RuntimeError(
                f"The shape of the 2D attn_mask is {mask.shape}, but should be {(rows, columns)}."
            )
        return mask.view(1, 1, rows, columns)
    expected = (batch * heads, rows, columns)
    if tuple(mask.shape) != expected:
        raise RuntimeError(
            f"The shape of the 3D attn_mask is {mask.shape}, but should be {expected}."
        )
    return mask.reshape(batch, heads, rows, columns)


def _project(
    query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; one product does for inputs that are the same tensor."""
    if isinstance(weights, tuple):
        parts = (None, None, None) if bias is None else bias.chunk(3)
        q, k, v = [
            linear(x, w, b) for x, w, b in zip((query, key, value), weights, parts, strict=True)
        ]
        return q, k, v
    if key is value and query is key:
        q, k, v = linear(query, weights, bias).chunk(3, -1)
        return q, k, v
    width = query.size(-1)
    if key is value:
        w_q, w_kv = weights.split([width, 2 * width])
        b_q, b_kv = (None, None) if bias is None else bias.split([width, 2 * width])
        k, v = linear(key, w_kv, b_kv).chunk(2, -1)
        return linear(query, w_q, b_q), k, v
    return _project(query, key, value, tuple(weights.chunk(3)), bias)


def _masks(
    mask: Tensor | None, padding: Tensor | None, is_causal: bool, need_weights: bool, dtype: Any
) -> tuple[Tensor | None, Tensor | None, bool]:
    """Both masks in the type that scores have; no mask where `is_causal` says all of it."""
    padding = canonical_mask(padding, "key_padding_mask", mask, "attn_mask", dtype)
    if is_causal and mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and padding is None and not need_weights:
        return None, None, True
    mask = canonical_mask(mask, "attn_mask", None, "", dtype, check_other=False)
    return mask, padding, is_causal and padding is None


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of (length, batch, features); with `need_weights` the whole matrix of weights is
    written.

    Shape: query (l, n, e) or (l, e), key and value (s, n, ...); the result the query's, the weights
    (n, l, s).
    Dtypes: floating point, alike.
    Raises: RuntimeError and AssertionError for shapes that don't fit.
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_kv, same_q = key is value, query is key
        query = query.unsqueeze(1)
        key = query if same_q else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        key_padding_mask = key_padding_mask.unsqueeze(0) if key_padding_mask is not None else None
    rows, batch, width = query.shape
    attn_mask, padding, is_causal = _masks(
        attn_mask, key_padding_mask, is_causal, need_weights, query.dtype
    )
    _check_widths(width, embed_dim_to_check, num_heads, key, value, use_separate_proj_weight)

    weights: Any = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight
        else in_proj_weight
    )
    q, k, v = _project(query, key, value, weights, in_proj_bias)
    columns = k.size(0)
    mask = None if attn_mask is None else _mask_by_head(attn_mask, batch, num_heads, rows, columns)
    extra = 0  # keys and values beside those given
    if bias_k is not None and bias_v is not None:
        k, v = cat([k, bias_k.repeat(1, batch, 1)]), cat([v, bias_v.repeat(1, batch, 1)])
        extra += 1
    head = width // num_heads
    # (length, batch, features) as (batch, heads, length, head): views
    q, k, v = [t.unflatten(-1, (num_heads, head)).permute(1, 2, 0, 3) for t in (q, k, v)]
    if static_k is not None:
        k = static_k.view(batch, num_heads, -1, head)
    if static_v is not None:
        v = static_v.view(batch, num_heads, -1, head)
    if add_zero_attn:
        zero = q.new_zeros((batch, num_heads, 1, head))
        k, v = cat([k, zero], 2), cat([v, zero], 2)
        extra += 1
    mask = _merged(mask, padding, extra)
    dropout = dropout_p if training else 0.0
    if need_weights:
        found, scores = _with_weights(q, k, v, mask, dropout)
    else:
        found = scaled_dot_product_attention(q, k, v, mask, dropout, is_causal and mask is None)
        scores = None
    found = linear(
        found.permute(2, 0, 1, 3).reshape(rows * batch, width), out_proj_weight, out_proj_bias
    )
    output = found.view(rows, batch, found.size(1))
    if scores is not None and average_attn_weights:
        scores = scores.mean(dim=1)
    if not batched:
        output = output.squeeze(1)
        scores = scores.squeeze(0) if scores is not None else None
    return output, scores


def _check_widths(
    width: int, expected: int, heads: int, key: Tensor, value: Tensor, separate: bool
) -> None:
    if width != expected:
        raise AssertionError(f"was expecting embedding dimension of {expected}, but got {width}")
    if width % heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
        )
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _merged(mask: Tensor | None, padding: Tensor | None, extra: int) -> Tensor | None:
    """Both masks as one, with `extra` columns that nobody masks."""
    if mask is not None and extra:
        mask = pad(mask, (0, extra))
    if padding is None:
        return mask
    padding = (pad(padding, (0, extra)) if extra else padding).unsqueeze(1).unsqueeze(1)
    return padding if mask is None else mask + padding


def _with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    scores = matmul(q * math.sqrt(1.0 / q.size(-1)), k.transpose(-2, -1))
    if mask is not None:
        scores = scores + mask
    scores = NAMESPACES["nn.functional"]["softmax"](scores, -1)
    if dropout > 0.0:
        scores = NAMESPACES["nn.functional"]["dropout"](scores, dropout)
    return matmul(scores, v), scores


export(
    "multi_head_attention_forward", multi_head_attention_forward, ("nn.functional",), method=False
)
