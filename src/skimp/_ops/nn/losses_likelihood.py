"""Losses that are likelihoods: kl_div, poisson_nll_loss, gaussian_nll_loss."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import refuse_cast
from skimp._ops.nn.cross_entropy import check_tensor
from skimp._ops.nn.losses_reduced import reduced
from skimp._ops.nn.reduction import REDUCTIONS, check_reduction, reduction_of


def kl_div(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Any:
    """target * (log(target) - input), for an input of log-probabilities.

    >>> p, q = torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])
    >>> torch.nn.functional.kl_div(q.log(), p, reduction="sum")  # KL(p || q)
    tensor(0.1438)

    Shape: input and target alike, or broadcasting; one number, or theirs with reduction="none".
    Dtypes: floating point.
    Raises: ValueError for an unknown reduction, RuntimeError for shapes that don't broadcast.
    """
    batch = reduction == "batchmean"
    if size_average is None and reduce is None:
        if reduction == "mean":
            warn(
                "reduction: 'mean' divides the total loss by both the batch size and the support "
                "size.'batchmean' divides only by the batch size, and aligns with the KL div math "
                "definition.'mean' will be changed to behave the same as 'batchmean' in the next "
                "major release."
            )
    else:
        reduction = reduction_of(size_average, reduce, reduction)
    check_tensor("kl_div", target)
    if not (input._dtype.is_floating_point and target._dtype.is_floating_point):
        raise RuntimeError("kl_div: Integral inputs not supported.")
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target.xlogy(target) - target * input  # 0 log 0 is 0
    found = reduced(loss, "sum" if batch else reduction)
    return found / input.shape[0] if batch and input.ndim else found


def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """The negative log-likelihood of counts; `full` adds Stirling's approximation of
    log(target!).

    Shape: input and target alike, or broadcasting; one number, or theirs with reduction="none".
    Dtypes: integers and floating point.
    Raises: ValueError for an unknown reduction.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction(reduction)
    check_tensor("poisson_nll_loss", target)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """The negative log-likelihood of a normal distribution of the given mean and variance.

    Shape: input and target alike; `var` too, without its last dim, with a last dim of 1, or a
    number.
    Dtypes: integers and floating point; var floating point.
    Raises: ValueError for a var that doesn't fit or is negative, or an unknown reduction.
    """
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * input.new_ones(tuple(input.shape))
    elif bool((var.detach() < 0).any()):
        raise ValueError("var has negative entry/entries")
    if tuple(var.shape) != tuple(input.shape):
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif not (
            tuple(input.shape[:-1]) == tuple(var.shape[:-1]) and var.shape[-1] == 1
        ) and not _fits(input, var):
            raise ValueError("var is of incorrect size")
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not valid")
    refuse_cast(dtypes.float32, var._dtype)
    floor = var.detach().clamp(min=eps)
    var = var + (floor - var.detach())  # the gradient passes as if nothing had been clamped
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


def _fits(input: Any, var: Any) -> bool:
    """Whether the variance broadcasts to the input."""
    if var.ndim != input.ndim:
        return False
    return all(a in (1, b) for a, b in zip(var.shape, input.shape, strict=True))


export(
    "kl_div", kl_div, ("nn.functional",), method=False, composite=False, autocast="float32",
    batch="parts",
)  # fmt: skip
export("gaussian_nll_loss", gaussian_nll_loss, ("nn.functional",), method=False, composite=False)
export("poisson_nll_loss", poisson_nll_loss, ("nn.functional",), method=False, autocast="float32")
