"""The loss of log-probabilities at classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.operands import unrecorded
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._kernels.order import farthest
from skimp._kernels.scratch import starts
from skimp._ops import batching
from skimp._ops.index.masks import where
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.cross_entropy import Rows, check_tensor, checked_classes, refuse_weights
from skimp._ops.nn.reduction import REDUCTIONS, check_reduction, reduction_of
from skimp._ops.reduce.small_sums import total
from skimp._ops.reduce.softmax import SMALL, floating, sides
from skimp._ops.ties import tie, tied


@hidden(
    kind="row-wise",
    meta=shapes.nll,
    rule=Rule(
        "NllLossBackward0",
        input=lambda g, input_shape, target, shares, valid: _back(
            g, input_shape, target, shares, valid
        ),
    ),
)
def _nll(input: Any, target: Any, shares: Any, valid: Any) -> Any:
    """-input[row, target] * share, for each row (outer, 1, inner) of an (outer, classes, inner)
    input; 0 where a row isn't valid, if that is told, whatever its element is."""
    picked = shaping.along(input._skimp_array(), target._skimp_array(), 1)
    losses = -picked * shares._skimp_array()
    if valid is not None:
        losses = bare.where(valid._skimp_array(), losses, losses.dtype.type(0))
    return fresh(losses, input._dtype)


def _back(g: Any, input_shape: Any, target: Any, shares: Any, valid: Any) -> Any:
    given = -(g * shares)
    if valid is not None:  # of no valid row the mean's gradient is nan
        given = where(valid, given, 0)
    return g.new_zeros(tuple(input_shape)).scatter(1, target, given)


def _node(input: Any, **_: Any) -> str | None:
    return {1: "NllLossBackward0", 2: "NllLossBackward0", 4: "NllLoss2DBackward0"}.get(input.ndim)


def _small_back(g: Any, input_shape: Any, target: Any, reduction: str, node: Any) -> Any:
    n = target.numel()
    found, where = unrecorded(g), target._np
    if found is not None and where is not None:
        share = found[0] if reduction != "mean" else found[0] / float(n)
        made = np.zeros(input_shape, share.dtype)
        made.reshape(-1)[where + starts(n, input_shape[1])] = np.negative(share)
        return tie(fresh(made, g._dtype), node)
    share = g if reduction != "mean" else g / float(n)
    share = -share.reshape(n, 1) if reduction == "none" else (-share).expand(n, 1)
    return tie(g.new_zeros(tuple(input_shape)).scatter(1, target.reshape(n, 1), share), node)


_SMALL = Rule("NllLossBackward0", input=_small_back)


def _small(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """The loss of a small matrix whose classes are all within it."""
    x, t = input._np, getattr(target, "_np", None)
    if x is None or t is None or not (weight is size_average is reduce is None):
        return None
    if (
        input._dtype not in dtypes.FLOATING
        or t.dtype != np.int64
        or x.ndim != 2
        or t.shape != x.shape[:1]
    ):
        return None
    n, classes = x.shape
    if not 0 < x.size < SMALL or 0 <= ignore_index < classes or reduction not in REDUCTIONS:
        return None
    if farthest(t) >= classes:  # negative ones are large
        return None
    found = np.negative(x.reshape(-1).take(t + starts(n, classes)))
    if reduction != "none":
        found = total(found)
        found = found / x.dtype.type(n) if reduction == "mean" else found
    return fresh(found, input._dtype)


@shown(_node, "input")
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """Minus each row's element at its target; the input holds log-probabilities.

    Shape: input (classes,), (n, classes) or (n, classes, ...); target () or (n, ...).
    Dtypes: a floating point input; int64 or uint8 targets.
    Raises: ValueError and RuntimeError for shapes that don't fit, IndexError for a class out of
    range.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction(reduction)
    if isinstance(ignore_index, Tensor):
        ignore_index = int(ignore_index.__index__())
    check_tensor("nll_loss_nd", target)
    if input.ndim == 0:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if target._rg:
        raise RuntimeError("the derivative for 'target' is not implemented")
    refuse_weights(weight)
    target = checked_classes(input, target, weight)
    floating("nll_loss_out_frame", input)
    if input._hollow:
        return _without_bytes(input, target, reduction)
    rows = Rows(tuple(input.shape), target, weight, ignore_index, input._dtype.np)
    outer, n, inner = sides(tuple(input.shape), rows.dim)
    shares = np.ascontiguousarray(shaping.broadcast(rows.share, rows.at.shape)).reshape(
        outer, 1, inner
    )
    at = fresh(rows.at.reshape(outer, 1, inner).astype(np.int64), dtypes.int64)
    valid = None
    if rows.valid is not None:
        valid = fresh(rows.valid.reshape(outer, 1, inner), dtypes.bool)
    losses = _nll(tied(input).reshape(outer, n, inner), at, fresh(shares, input._dtype), valid)
    if reduction == "none":
        return losses.reshape(tuple(target.shape))
    total = losses.sum()
    return total if reduction == "sum" else total / float(rows.total())


def _without_bytes(input: Any, target: Any, reduction: str) -> Any:
    outer, n, inner = sides(tuple(input.shape), 1 if input.ndim > 1 else 0)
    at = target.reshape(outer, 1, inner)
    losses = _nll(input.reshape(outer, n, inner), at, meta.empty(at.shape, input._dtype), None)
    return losses.reshape(tuple(target.shape)) if reduction == "none" else losses.sum()


export(
    "nll_loss",
    nll_loss,
    ("nn.functional",),
    fast=_small,
    fast_rule=_SMALL,
    method=False,
    composite=False,
    autocast="float32",
    batch=batching.layers.class_losses,
)
