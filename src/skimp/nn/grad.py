"""torch.nn.grad: the gradients of convolutions as functions, without a forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor import meta
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.nn.convolution import input_gradient, per_dim, weight_gradient

Number = int | Sequence[int]


def _steps(
    nd: int, sizes: tuple[Any, Any], grad: Tensor, stride: Any, padding: Any, dilation: Any, n: int
) -> tuple[Any, ...]:
    """The steps for each dim, once a convolution of these sizes is known to have this gradient."""
    conv = NAMESPACES["nn.functional"][f"conv{nd}d"]
    input, weight = [meta.empty(tuple(size), grad._dtype) for size in sizes]
    if input.ndim != nd + 2:
        raise RuntimeError(
            f"conv{nd}d's gradient is that of a batch: expected {nd + 2} sizes,"
            f" got {list(sizes[0])}"
        )
    shape = conv(input, weight, None, stride, padding, dilation, n).shape
    if shape != grad.shape:
        raise RuntimeError(
            f"expected grad_output to have shape {list(shape)}, that of conv{nd}d's result, but got"
            f" {list(grad.shape)}"
        )
    words = zip((stride, padding, dilation), ("stride", "padding", "dilation"), strict=True)
    return (*[per_dim(value, nd, name) for value, name in words], int(n))


def _input(nd: int, size: Any, weight: Tensor, grad: Tensor, *how: Any) -> Tensor:
    steps = _steps(nd, (size, weight.shape), grad, *how)
    return input_gradient(grad, weight, tuple(size), *steps)  # type: ignore[no-any-return]


def _weight(nd: int, input: Tensor, size: Any, grad: Tensor, *how: Any) -> Tensor:
    steps = _steps(nd, (input.shape, size), grad, *how)
    return weight_gradient(grad, input, tuple(size), *steps)  # type: ignore[no-any-return]


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d's input, of `input_size`, from that of its result.

    Shape: weight (c_out, c_in / groups, k), grad_output as the result's; the gradient (n, c_in, l).
    Dtypes: both alike.
    Raises: RuntimeError for sizes that don't fit together.
    Memory: a new tensor.
    """
    return _input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d's weight, of `weight_size`, from that of its result.

    Shape: input (n, c_in, l); grad_output as the result's; `weight_size` comes.
    Dtypes: both alike.
    Raises: RuntimeError for sizes that don't fit together.
    Memory: a new tensor.
    """
    return _weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d's input, of `input_size`, from that of its result.

    Shape: weight (c_out, c_in / groups, kh, kw), grad_output as the result's; the gradient
    (n, c_in, h, w).
    Dtypes: both alike.
    Raises: RuntimeError for sizes that don't fit together.
    Memory: a new tensor.
    """
    return _input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d's weight, of `weight_size`, from that of its result.

    Shape: input (n, c_in, h, w); grad_output as the result's; `weight_size` comes.
    Dtypes: both alike.
    Raises: RuntimeError for sizes that don't fit together.
    Memory: a new tensor.
    """
    return _weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d's input, of `input_size`, from that of its result.

    Shape: weight (c_out, c_in / groups, kd, kh, kw), grad_output as the result's; the gradient
    (n, c_in, d, h, w).
    Dtypes: both alike.
    Raises: RuntimeError for sizes that don't fit together.
    Memory: a new tensor.
    """
    return _input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d's weight, of `weight_size`, from that of its result.

    Shape: input (n, c_in, d, h, w); grad_output as the result's; `weight_size` comes.
    Dtypes: both alike.
    Raises: RuntimeError for sizes that don't fit together.
    Memory: a new tensor.
    """
    return _weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)
