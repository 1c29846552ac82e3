"""Attention of projections in which the features of all heads lie side by side: one node from
there to the rows that the projection of the result takes.

Heads are views of arrays, so no tensor is made of them, and the gradients of queries, keys and
values are written where the gradient of their projection lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from skimp._engine.autograd import modes, saving
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import NAMESPACES, hidden
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.transforms import NOTED, active
from skimp._engine.memory.layout import contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import attention as attend
from skimp._ops.nn.attention import described, dropping, in_ops_back

# which of queries, keys and values lie side by side in so many projections
_PIECES: Final = {1: (3,), 2: (1, 2), 3: (1, 1, 1)}
_BY_LENGTH: Final = (2, 1, 3, 0, 4)  # (length, batch, piece, head, e), the piece and heads first
_BY_BATCH: Final = (2, 0, 3, 1, 4)


def in_heads(
    parts: Sequence[Tensor],
    heads: int,
    batch_first: bool,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
) -> Tensor | None:
    """The results of all heads as (length * batch, features). None where somebody wants to know of
    the heads, or the projections don't lie row by row: then it is made of ops.

    `parts`: queries, keys and values, the last two or all three of them perhaps in one, of (batch,
    length, features) or (length, batch, features).
    """
    if not _are_plain(parts, mask):
        return None
    dtype = parts[0]._dtype
    q, k, v = _split([t._skimp_array() for t in parts], heads, batch_first)
    if q.shape[:2] != k.shape[:2] or k.shape != v.shape or q.shape[3] != k.shape[3]:
        return None
    if not (q.size and k.size):
        return None
    kept, grow = dropping((*q.shape[:-1], k.shape[2]), dropout, parts[0])
    first, second, third = (*parts, None, None)[:3]
    given = (first, second, third, heads, batch_first, mask, causal, kept, grow)
    if active:  # a budget notes how the result is made
        return _attention_in_heads(*given)[0]  # type: ignore[no-any-return]
    keeps = modes.state.grad and any([t._rg for t in parts])
    made, lse = _attend(q, k, v, dtype, mask, causal, kept, grow, keeps)
    if keeps:
        _RECORDED.record((made, lse), *given)
    return made


def _attend(
    q: Array,
    k: Array,
    v: Array,
    dtype: dtypes.dtype,
    mask: Any,
    causal: bool,
    kept: Any,
    grow: float,
    keeps: bool,
) -> tuple[Tensor, Tensor | None]:
    """The result, and each row's logsumexp if it is to be kept."""
    batch, heads, rows, e = q.shape
    made, into = blank((rows * batch, heads * e), dtype)
    whole = (*q.shape[:-1], k.shape[2])
    a = described(dtype, whole, mask, causal, 1.0 / math.sqrt(e), kept, grow)
    lse, level = blank((*q.shape[:-1], 1), dtypes.accumulator(dtype)) if keeps else (None, None)
    attend.forward(q, k, v, _by_head(into, q.shape), level, a)
    return made, lse


def _are_plain(parts: Sequence[Tensor], mask: Tensor | None) -> bool:
    if (active and active != NOTED) or saving.GUARDED or modes.state.vmaps:
        return False
    dtype = parts[0]._dtype
    if dtype not in dtypes.FLOATING:
        return False
    width = shape_of(parts[0])[-1] // _PIECES[len(parts)][0]
    for t, pieces in zip(parts, _PIECES[len(parts)], strict=True):
        if type(t) not in ORDINARY or t._dtype is not dtype or shape_of(t)[-1] != pieces * width:
            return False
        if not _lies_in_rows(t):
            return False
    return mask is None or (
        type(mask) in ORDINARY and not mask._rg and mask._dtype in (dtypes.bool, dtype)
    )


def _split(arrays: Sequence[Array], heads: int, batch_first: bool) -> list[Array]:
    """Queries, keys and values as (batch, heads, length, e): views."""
    found: list[Array] = []
    for a, pieces in zip(arrays, _PIECES[len(arrays)], strict=True):
        one, other, width = a.shape
        apart = a.reshape(one, other, pieces, heads, width // (pieces * heads))
        found.extend(apart.transpose(_BY_BATCH if batch_first else _BY_LENGTH))
    return found


def _by_head(rows: Array, shape: tuple[int, ...]) -> Array:
    """(length * batch, features) as this shape, of (batch, heads, length, e)."""
    batch, heads, length, e = shape
    return rows.reshape(length, batch, heads, e).transpose(1, 2, 0, 3)


def _back(
    g0: Any,
    first: Any,
    second: Any,
    third: Any,
    heads: int,
    batch_first: bool,
    mask: Any,
    causal: bool,
    kept: Any,
    grow: float,
    result0: Any,
    result1: Any,
) -> Any:
    parts = [t for t in (first, second, third) if t is not None]
    if modes.state.grad or g0._hollow:
        found = _back_in_ops(g0, parts, heads, batch_first, mask, causal, kept, grow)
        return (*found, None, None)[:3]
    q, k, v = _split([t._skimp_array() for t in parts], heads, batch_first)
    whole, e = (*q.shape[:-1], k.shape[2]), q.shape[3]
    a = described(g0._dtype, whole, mask, causal, 1.0 / math.sqrt(e), kept, grow)
    g, out = [_by_head(t._skimp_array(), q.shape) for t in (g0, result0)]
    made = [blank(shape_of(t), t._dtype) for t in parts]
    into = _split([array for _, array in made], heads, batch_first)
    attend.backward(g, (q, k, v, out, result1._skimp_array()), tuple(into), a)
    return (*[t for t, _ in made], None, None)[:3]


def _back_in_ops(
    g: Any,
    parts: Sequence[Any],
    heads: int,
    batch_first: bool,
    mask: Any,
    causal: bool,
    kept: Any,
    grow: float,
) -> list[Any]:
    """The same in ops, for derivatives of the derivative."""
    order = (0, 2, 1, 3) if batch_first else (1, 2, 0, 3)
    back = (0, 2, 1, 3) if batch_first else (2, 0, 1, 3)
    pieces = _PIECES[len(parts)]
    inputs = [t for part, n in zip(parts, pieces, strict=True) for t in part.chunk(n, -1)]
    q, k, v = [t.unflatten(-1, (heads, -1)).permute(order) for t in inputs]
    rows, batch = q.shape[2], q.shape[0]
    by_head = g.reshape(rows, batch, heads, -1).permute(1, 2, 0, 3)
    scale = 1.0 / math.sqrt(q.shape[3])
    grads = in_ops_back(by_head, q, k, v, mask, causal, scale, kept, grow)
    flat = iter([t.permute(back).flatten(2) for t in grads])
    return [NAMESPACES[""]["cat"]([next(flat) for _ in range(n)], -1) for n in pieces]


_IN_HEADS: Final = Rule(
    "ScaledDotProductFlashAttentionForCpuBackward0",
    {("first", "second", "third"): _back},
    at_once=True,
)
_RECORDED = recording(
    _IN_HEADS,
    ("first", "second", "third", "heads", "batch_first", "mask", "causal", "kept", "grow"),
    (1,),
)


@hidden(nondiff=(1,), rule=_IN_HEADS)
def _attention_in_heads(
    first: Any,
    second: Any,
    third: Any,
    heads: int,
    batch_first: bool,
    mask: Any,
    causal: bool,
    kept: Any,
    grow: float,
) -> Any:
    """`in_heads` as one op, and each row's logsumexp."""
    parts = [t for t in (first, second, third) if t is not None]
    q, k, v = _split([t._skimp_array() for t in parts], heads, batch_first)
    return _attend(q, k, v, first._dtype, mask, causal, kept, grow, keeps=True)


def _lies_in_rows(t: Tensor) -> bool:
    """Whether a tensor of floats is row-major in memory."""
    a = t._np
    if a is not None:
        return a.flags.c_contiguous
    shape, strides, _ = t._skimp_layout or t._skimp_layout_of()
    return not t._skimp_neg and strides == contiguous_strides(shape)
