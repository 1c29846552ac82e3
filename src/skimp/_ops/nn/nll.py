"""The loss of log-probabilities at classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export, rowwise
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import fresh
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.cross_entropy import Rows, check_tensor, checked_classes
from skimp._ops.nn.reduction import check_reduction, reduction_of
from skimp._ops.reduce.softmax import floating, sides
from skimp._ops.ties import tied


@rowwise(
    "_nll",
    meta=shapes.nll,
    method=False,
    namespaces=(),
    rule=Rule(
        "NllLossBackward0",
        input=lambda g, input_shape, target, shares: g.new_zeros(tuple(input_shape)).scatter(
            1, target, -(g * shares)
        ),
    ),
)
def _nll(input: Any, target: Any, shares: Any) -> Any:
    """-input[row, target] * share, for each row (outer, 1, inner) of an (outer, classes, inner)
    input."""
    picked = np.take_along_axis(input.array(), target.array(), 1)
    return fresh(-picked * shares.array(), input._dtype)


def _node(input: Any, **_: Any) -> str | None:
    return {1: "NllLossBackward0", 2: "NllLossBackward0", 4: "NllLoss2DBackward0"}.get(input.ndim)


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
    Memory: a new tensor.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction(reduction)
    check_tensor("nll_loss_nd", target)
    if input.ndim == 0:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if target._rg:
        raise RuntimeError("the derivative for 'target' is not implemented")
    target = checked_classes(input, target, weight)
    floating("nll_loss_out_frame", input)
    if input._hollow:
        return _without_bytes(input, target, reduction)
    rows = Rows(tuple(input.shape), target, weight, ignore_index, input._dtype.np)
    outer, n, inner = sides(tuple(input.shape), rows.dim)
    shares = np.ascontiguousarray(np.broadcast_to(rows.share, rows.at.shape)).reshape(
        outer, 1, inner
    )
    at = fresh(rows.at.reshape(outer, 1, inner).astype(np.int64), dtypes.int64)
    losses = _nll(tied(input).reshape(outer, n, inner), at, fresh(shares, input._dtype))
    if reduction == "none":
        return losses.reshape(tuple(target.shape))
    total = losses.sum()
    return total if reduction == "sum" else total / float(rows.total())


def _without_bytes(input: Any, target: Any, reduction: str) -> Any:
    outer, n, inner = sides(tuple(input.shape), 1 if input.ndim > 1 else 0)
    at = target.reshape(outer, 1, inner)
    losses = _nll(input.reshape(outer, n, inner), at, meta.empty(at.shape, input._dtype))
    return losses.reshape(tuple(target.shape)) if reduction == "none" else losses.sum()


export(
    "nll_loss",
    nll_loss,
    ("nn.functional",),
    method=False,
    composite=False,
    autocast="float32",
    batch=batching.layers.class_losses,
)
