"""What the methods of nn.utils.prune reckon with: amounts, and masks that leave less."""

from __future__ import annotations

import math
import numbers
from typing import Any

from skimp._engine.tensor import formats
from skimp._engine.tensor.tensor import Tensor


def check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    most = math.inf if isinstance(amount, numbers.Integral) else 1.0
    if not 0.0 <= float(amount) <= most:
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def number_of(amount: float, size: int) -> int:
    """How many of `size` elements or channels an amount is."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if amount > size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune={size}"
        )
    return int(amount)


def check_scores(scores: Tensor, t: Tensor, named: str) -> None:
    """Refuse importances of another shape than what is pruned."""
    if scores.shape != t.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {named}, got {scores.shape} vs "
            f"{t.shape}"
        )


def left(method: Any, t: Tensor, mask: Tensor) -> Any:
    """The index of what a method may look at."""
    kind = method.PRUNING_TYPE
    if kind == "unstructured":
        return mask == 1
    if kind == "global":
        return (slice(None),) * t.ndim
    if kind != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
    if not hasattr(method, "dim"):
        raise AttributeError(
            'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
        )
    dim = method.dim + t.ndim if method.dim < 0 else method.dim
    if dim < 0:
        raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
    channels = mask.sum(dim=[d for d in range(t.ndim) if d != dim]) != 0
    return (*(slice(None),) * dim, channels)


def without(mask: Tensor, indices: Tensor) -> Tensor:
    """A mask with zeros at more places of its row-major order."""
    mask = mask.clone(memory_format=formats.contiguous_format)
    mask.view(-1)[indices] = 0
    return mask
