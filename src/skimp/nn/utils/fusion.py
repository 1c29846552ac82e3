"""Batch normalisation folded into the layer before it, for inference."""

from __future__ import annotations

import copy
from typing import Any

from skimp.nn import ops
from skimp.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what `conv` and then `bn` do, both in evaluation mode.

    Shape: as the convolution's.
    Raises: AssertionError for a module in training.
    Memory: a copy of the convolution with new weights.
    """
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose,
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the convolution that does both.

    Shape: weight (out, in, ...) ((in, out, ...) with `transpose`), all others (out,); a pair of
    such.
    Memory: new parameters.
    """
    scale, shift = _affine(bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    shape = [1, -1] if transpose else [-1, 1]
    weight = conv_w * scale.reshape(shape + [1] * (conv_w.dim() - 2))
    return _parameters(weight, scale, shift, bn_rm, conv_w, conv_b)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what `linear` and then `bn` do, both in evaluation mode.

    Shape: as the linear layer's.
    Raises: AssertionError for a module in training, or widths that differ.
    Memory: a copy of the layer with new weights.
    """
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the linear layer that does both.

    Shape: weight (out, in), all others (out,); a pair of such.
    Memory: new parameters.
    """
    scale, shift = _affine(bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return _parameters(linear_w * scale.unsqueeze(-1), scale, shift, bn_rm, linear_w, linear_b)


def _affine(mean: Any, var: Any, eps: float, weight: Any, bias: Any) -> tuple[Any, Any]:
    scale = ops.rsqrt(var + eps)
    return (scale if weight is None else weight * scale), (
        ops.zeros_like(mean) if bias is None else bias
    )


def _parameters(
    weight: Any, scale: Any, shift: Any, mean: Any, old_w: Any, old_b: Any
) -> tuple[Parameter, Parameter]:
    bias = (0 if old_b is None else old_b) - mean
    grad_b = old_w.requires_grad if old_b is None else old_b.requires_grad
    return Parameter(weight.to(old_w.dtype), old_w.requires_grad), Parameter(
        bias * scale + shift, grad_b
    )
