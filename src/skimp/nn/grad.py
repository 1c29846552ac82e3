"""torch.nn.grad: the gradients of convolutions as functions, without a forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor import meta
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.nn.convolution import input_gradient, weight_gradient
from skimp._ops.nn.convolution_arguments import per_dim

Number = int | Sequence[int]
Function = Callable[..., Tensor]


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


def _declare(nd: int, kernel: str, size: str) -> tuple[Function, Function]:
    def to_input(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: Number = 1,
        padding: Number = 0,
        dilation: Number = 1,
        groups: int = 1,
    ) -> Tensor:
        sizes = (input_size, weight.shape)
        steps = _steps(nd, sizes, grad_output, stride, padding, dilation, groups)
        return input_gradient(grad_output, weight, tuple(input_size), *steps)  # type: ignore[no-any-return]

    def to_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: Number = 1,
        padding: Number = 0,
        dilation: Number = 1,
        groups: int = 1,
    ) -> Tensor:
        sizes = (input.shape, weight_size)
        steps = _steps(nd, sizes, grad_output, stride, padding, dilation, groups)
        return weight_gradient(grad_output, input, tuple(weight_size), *steps)  # type: ignore[no-any-return]

    for f, what in ((to_input, "input"), (to_weight, "weight")):
        f.__name__ = f.__qualname__ = f"conv{nd}d_{what}"
        f.__doc__ = DOC.format(nd=nd, what=what, kernel=kernel, size=size)
    return to_input, to_weight


DOC = """The gradient of conv{nd}d's {what}, of `{what}_size`, from that of its result.

Shape: input (n, c_in, {size}), weight (c_out, c_in / groups, {kernel}), grad_output as the
result's.
Dtypes: both alike.
Raises: RuntimeError for sizes that don't fit together.
Memory: a new tensor.
"""
conv1d_input, conv1d_weight = _declare(1, "k", "l")
conv2d_input, conv2d_weight = _declare(2, "kh, kw", "h, w")
conv3d_input, conv3d_weight = _declare(3, "kd, kh, kw", "d, h, w")
