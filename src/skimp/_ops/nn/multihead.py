"""multi_head_attention_forward: attention in several heads (Vaswani et al. 2017), its projections
included.
"""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.forms import NAMESPACES, export
from skimp._engine.memory.call_site import named, warn
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.linalg.matmul import matmul
from skimp._ops.nn.attention import scaled_dot_product_attention
from skimp._ops.nn.attention_heads import in_heads
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
    dims = len(shape_of(query))
    if dims not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor"
        )
    what = f"For {'batched' if dims == 3 else 'unbatched'} ({dims}-D) `query`, expected"
    if not len(shape_of(key)) == len(shape_of(value)) == dims:
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
) -> tuple[Tensor, ...]:
    """Queries, keys and values; one product, whose result they share, does for inputs that are the
    same tensor.
    """
    if isinstance(weights, tuple):
        parts = (None, None, None) if bias is None else bias.chunk(3)
        inputs = (query, key, value)
        return tuple([linear(x, w, b) for x, w, b in zip(inputs, weights, parts, strict=True)])
    if key is value and query is key:
        return (linear(query, weights, bias),)
    width = query.size(-1)
    if key is value:
        w_q, w_kv = weights.split([width, 2 * width])
        b_q, b_kv = (None, None) if bias is None else bias.split([width, 2 * width])
        pair = linear(key, w_kv, b_kv)
        return linear(query, w_q, b_q), pair
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
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    return attention_in_heads(
        query,
        key,
        value,
        embed_dim_to_check,
        num_heads,
        separate if use_separate_proj_weight else in_proj_weight,
        in_proj_bias,
        (bias_k, bias_v),
        add_zero_attn,
        dropout_p if training else 0.0,
        (out_proj_weight, out_proj_bias),
        key_padding_mask,
        need_weights,
        attn_mask,
        average_attn_weights,
        is_causal,
        static=(static_k, static_v),
    )


@named("multi_head_attention_forward")
def attention_in_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    heads: int,
    weights: Any,
    bias: Tensor | None,
    bias_kv: tuple[Tensor | None, Tensor | None],
    add_zero_attn: bool,
    dropout: float,
    out: tuple[Tensor, Tensor | None],
    padding: Tensor | None,
    need_weights: bool,
    mask: Tensor | None,
    average: bool,
    is_causal: bool,
    batch_first: bool = False,
    static: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor | None]:
    """Attention of (length, batch, features), or (batch, length, features) with `batch_first`:
    rows are projected as they lie. The result lies by length first in both cases, as PyTorch's
    does, since dropout draws in that order.
    """
    batched = _check_shapes(query, key, value, padding, mask, heads)
    if not batched:
        batch_first = False
        same_kv, same_q = key is value, query is key
        query = query.unsqueeze(1)
        key = query if same_q else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        padding = padding.unsqueeze(0) if padding is not None else None
    along = 1 if batch_first else 0
    rows, batch, width = query.shape
    if batch_first:
        rows, batch = batch, rows
    mask, padding, is_causal = _masks(mask, padding, is_causal, need_weights, query.dtype)
    _check_widths(width, embed_dim, heads, key, value, isinstance(weights, tuple), along)
    parts = _project(query, key, value, weights, bias)
    if mask is not None:
        mask = _mask_by_head(mask, batch, heads, rows, key.shape[along])
    if padding is not None:
        keys = key.shape[along] if static[0] is None else static[0].size(1)
        _check_padding(padding, batch, keys, (bias_kv[0] is not None) + bool(add_zero_attn))
    found = scores = None
    given = need_weights or add_zero_attn
    if not given and static[0] is static[1] is bias_kv[0] is bias_kv[1] is None:
        mask, padding = _merged(mask, padding, 0), None
        causal = is_causal and mask is None
        found = in_heads(parts, heads, batch_first, mask, dropout, causal)
    if found is None:
        more = (bias_kv, add_zero_attn, static)
        q, k, v, extra = _by_views(parts, heads, batch_first, *more)
        mask = _merged(mask, padding, extra)
        if need_weights:
            found, scores = _with_weights(q, k, v, mask, dropout)
        else:
            found = scaled_dot_product_attention(q, k, v, mask, dropout, is_causal and mask is None)
        found = found.permute(2, 0, 1, 3).reshape(rows * batch, width)
    found = linear(found, *out)
    output = found.view(rows, batch, found.shape[1])
    if batch_first:
        output = output.transpose(1, 0)
    if scores is not None and average:
        scores = scores.mean(dim=1)
    if not batched:
        output = output.squeeze(1)
        scores = scores.squeeze(0) if scores is not None else None
    return output, scores


def _by_views(
    parts: tuple[Tensor, ...],
    heads: int,
    batch_first: bool,
    bias_kv: tuple[Tensor | None, Tensor | None],
    add_zero_attn: bool,
    static: tuple[Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Queries, keys and values as (batch, heads, length, head), views, and how many keys and values
    there are beside those given.
    """
    q, k, v = [*parts[:-1], *parts[-1].chunk(4 - len(parts), -1)]
    batch, width = q.shape[0 if batch_first else 1], q.shape[-1]
    bias_k, bias_v = bias_kv
    extra = 0
    if bias_k is not None and bias_v is not None:
        times, along = ((batch, 1, 1), 1) if batch_first else ((1, batch, 1), 0)
        k, v = [cat([t, b.repeat(times)], along) for t, b in ((k, bias_k), (v, bias_v))]
        extra += 1
    head = width // heads
    _check_static(static, bias_kv, batch * heads, head)
    order = (0, 2, 1, 3) if batch_first else (1, 2, 0, 3)
    q, k, v = [t.unflatten(-1, (heads, head)).permute(order) for t in (q, k, v)]
    k, v = [
        t if s is None else s.view(batch, heads, -1, head)
        for t, s in zip((k, v), static, strict=True)
    ]
    if add_zero_attn:
        zero = q.new_zeros((batch, heads, 1, head))
        k, v = cat([k, zero], 2), cat([v, zero], 2)
        extra += 1
    return q, k, v, extra


def _check_static(
    static: tuple[Tensor | None, Tensor | None], bias_kv: tuple[Tensor | None, Tensor | None],
    rows: int, head: int,
) -> None:  # fmt: skip
    """Keys and values that stand for those given are rows of heads, and have no biases."""
    for one, bias, word, what in zip(static, bias_kv, "kv", ("key", "value"), strict=True):
        if one is None:
            continue
        if bias is not None:
            raise AssertionError(f"bias cannot be added to static {what}.")
        for dim, wanted in ((0, rows), (2, head)):
            if one.size(dim) != wanted:
                raise AssertionError(
                    f"expecting static_{word}.size({dim}) of {wanted}, but got {one.size(dim)}"
                )


def _check_padding(padding: Tensor, batch: int, keys: int, extra: int) -> None:
    """PyTorch looks when keys and padding have `extra` columns more."""
    rows, columns = padding.shape
    for dim, (n, wanted) in enumerate(((rows, batch), (columns + extra, keys + extra))):
        if n != wanted:
            raise AssertionError(
                f"Expected key_padded_mask.shape[{dim}] to be {wanted}, but got {n}"
            )


def _check_widths(
    width: int, expected: int, heads: int, key: Tensor, value: Tensor, separate: bool, along: int
) -> None:
    if width != expected:
        raise AssertionError(f"was expecting embedding dimension of {expected}, but got {width}")
    if width % heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {heads}")
    if shape_of(key) == shape_of(value):
        return
    if along:  # what is refused is told as PyTorch does, length first
        key, value = key.transpose(1, 0), value.transpose(1, 0)
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
        )
    if not separate:
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
