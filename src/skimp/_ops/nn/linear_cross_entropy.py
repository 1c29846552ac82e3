"""linear_cross_entropy: a linear map and cross_entropy in one call."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._ops.nn.cross_entropy import cross_entropy
from skimp._ops.nn.linear import linear


def _check(input: Any, weight: Any, bias: Any) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {weight.ndim}"
        )
    if input.shape[-1] != weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    made = tuple(weight.shape[:-1])
    if bias is not None and tuple(bias.shape) != made:
        raise RuntimeError(f"expected linear_bias shape {made}, got {tuple(bias.shape)}")
    if len(made) > 1 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires "
            f"batched input, (N, {input.shape[-1]}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )


def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Any:
    """cross_entropy of linear(input); `options`, which asks PyTorch for chunks, has no effect.

    Shape: input (..., in), linear_weight (classes, in), target as of cross_entropy.
    Dtypes: as cross_entropy's.
    Raises: as linear and cross_entropy.
    Memory: the logits are written once.
    """
    _check(input, linear_weight, linear_bias)
    made = tuple(linear_weight.shape[:-1])
    logits = (*input.shape[:-1], *made)
    if tuple(target.shape) == logits and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    matrix = linear_weight.reshape((math.prod(made), linear_weight.shape[-1]))
    bias = None if linear_bias is None else linear_bias.reshape((math.prod(made),))
    return cross_entropy(
        linear(input, matrix, bias).reshape(logits),
        target,
        weight=weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


export("linear_cross_entropy", linear_cross_entropy, ("nn.functional",), method=False)
