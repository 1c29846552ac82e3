"""The losses that compare every class's score with the target's."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.checks import no_kernel, same_scalar_type
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import bare
from skimp._kernels.order import farthest
from skimp._ops.nn.reduction import check_reduction, loss


def _shape(input: Any) -> tuple[int, int]:
    """(rows, classes) of a vector or a matrix of scores."""
    if (
        input.ndim > 2
        or (input.ndim and 0 in tuple(input.shape[1:]))
        or (input.ndim == 1 and input.shape[0] == 0)
    ):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    if input.ndim == 2:
        return input.shape[0], input.shape[1]
    return 1, input.shape[0] if input.ndim else 1


def _finished(loss: Any, rows: Any, reduction: str) -> Any:
    """Rows' losses, their mean or their sum; a vector of scores has one."""
    if reduction == "none":
        return loss.reshape(rows)
    return loss.mean() if reduction == "mean" else loss.sum()


@loss(composite=False)
@shown("MultiMarginLossBackward0", "input")
def multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """The mean over the other classes of max(0, margin - score of the target + score) to the
    power of p.

    Shape: input (n, classes) or (classes,); target (n,) or ().
    Dtypes: floating point; int64 targets.
    Raises: ValueError for a p other than 1 or 2, RuntimeError for shapes and classes that don't
    fit.
    """
    check_reduction(reduction)
    n, classes = _shape(input)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if target.ndim > 1 or target.numel() != n:
        raise RuntimeError(f"inconsistent target size, expected {n} but got {list(target.shape)}")
    if input._dtype not in dtypes.FLOATING:
        raise no_kernel("multi_margin_loss_cpu_kernel", input._dtype)
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    if weight is not None and weight.numel() != classes:
        raise RuntimeError(
            f"inconsistent weight size, expected {classes} but got {list(weight.shape)}"
        )
    if weight is not None:
        same_scalar_type(input, weight)
    at = target.reshape((n, 1))
    values = meta.checked(at)
    if values.dtype == np.int64 and values.size and farthest(values) >= classes:
        raise RuntimeError("target out of range")
    scores = input if input.ndim == 2 else input.reshape((n, classes))
    gap = (margin - scores.gather(1, at) + scores).clamp_min(0)
    if p == 2:
        gap = gap * gap
    if weight is not None:
        gap = gap * weight.index_select(0, at.reshape(-1)).unsqueeze(1)
    own = _own_class(at, values, classes)
    loss = gap.masked_fill(own, 0).sum(1) / classes
    return _finished(loss, tuple(target.shape), reduction)


def _own_class(at: Any, values: Array, classes: int) -> Any:
    """Which class of each row is its target."""
    if at._hollow:
        return meta.empty((len(values), classes), dtypes.bool)
    return fresh(values == np.arange(classes), dtypes.bool)


@loss(composite=False)
@shown("MultilabelMarginLossBackward0", "input")
def multilabel_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """max(0, 1 - difference) summed over pairs of a target class and another, over their number.

    A row of the target names classes up to the first -1.

    Shape: input and target (n, classes) or (classes,).
    Dtypes: floating point; int64 targets.
    Raises: RuntimeError for shapes and classes that don't fit.
    """
    check_reduction(reduction)
    n, classes = _shape(input)
    if target._dtype is not dtypes.int64:
        found = promotion.scalar_type_name(target._dtype)
        raise RuntimeError(f"expected scalar type Long but found {found}")
    if tuple(target.shape) != tuple(input.shape):
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    if input._dtype not in dtypes.FLOATING:
        raise no_kernel("multilabel_margin_loss_forward_out_frame", input._dtype)
    labels = meta.checked(target).reshape(n, classes)
    if labels.size and (int(labels.min()) < -1 or int(labels.max()) >= classes):
        raise RuntimeError("target out of range")
    if input._hollow:
        gaps = input.reshape((n, classes)).unsqueeze(2) + input.reshape((n, classes)).unsqueeze(1)
        return _finished(gaps.sum((1, 2)), tuple(input.shape[:-1]), reduction)
    named = np.logical_and.accumulate(labels >= 0, axis=1)
    scores = input.reshape((n, classes))
    wanted = scores.gather(1, fresh(bare.where(named, labels, 0), dtypes.int64))
    gaps = (1 - wanted.unsqueeze(2) + scores.unsqueeze(1)).clamp_min(0)
    others = named[:, :, None] & ~_marked(labels, named)[:, None, :]
    loss = gaps.masked_fill(fresh(~others, dtypes.bool), 0).sum((1, 2)) / classes
    return _finished(loss, tuple(input.shape[:-1]), reduction)


def _marked(labels: Array, named: Array) -> Array:
    """Which classes each row names."""
    found = np.zeros(labels.shape, bool)
    rows, places = np.nonzero(named)
    found[rows, labels[rows, places]] = True
    return found


@loss(composite=False, autocast=None, batch="parts")
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    """The mean over classes of a logistic loss for each.

    Shape: input and target (..., classes); one number, or (...) with reduction="none".
    Dtypes: floating point.
    Raises: ValueError for an unknown reduction.
    """
    check_reduction(reduction)
    log = NAMESPACES["nn.functional"]["logsigmoid"]
    loss = -(target * log(input) + (1 - target) * log(-input))
    if weight is not None:
        loss = loss * weight
    last = input.ndim - 1
    loss = loss.sum(last) / input.shape[last]
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()
