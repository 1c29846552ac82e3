"""Convolutions whose in_channels the first input tells."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _weight_shape,
)
from skimp.nn.modules.lazy import LazyModuleMixin
from skimp.nn.parameter import UninitializedParameter

SAYS = """\
Dtypes: input, weight and bias alike.
Memory: a new tensor."""


class _LazyConv(LazyModuleMixin):
    """Beside a convolution class."""

    _skimp_about = """A convolution class whose in_channels the first input tells; then it is one.

    Shape: {input}, C any at the first call.
    Raises: in the first call, RuntimeError for other ranks, ValueError for channels that the groups
    don't divide.
    """
    _skimp_dims: int
    weight: Any
    bias: Any
    in_channels: int

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        steps = (kernel_size, stride, padding, dilation, groups)
        super().__init__(0, 0, *steps, False, padding_mode, device, dtype)
        self._skimp_wait(out_channels, bias, device, dtype)

    def _skimp_wait(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        """Parameters without shapes in place of those of no channels."""
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw weights and bias, once there are shapes."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the number of channels from the first input."""
        me: Any = self
        if not self.has_uninitialized_params():
            return
        if input.dim() not in (self._skimp_dims + 1, self._skimp_dims + 2):
            raise RuntimeError(
                f"Expected {self._skimp_dims + 1}D (unbatched) or {self._skimp_dims + 2}D "
                f"(batched) input to {type(self).__name__}, but got input of size: {input.shape}"
            )
        self.in_channels = input.shape[-self._skimp_dims - 1]
        if self.in_channels % me.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        channels = (self.in_channels, self.out_channels)
        self.weight.materialize(_weight_shape(*channels, me.groups, me.transposed, me.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyConvTranspose(_LazyConv):
    """Beside a transposed convolution class, whose arguments have another order."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        steps = (kernel_size, stride, padding, output_padding, groups)
        begin: Any = super(_LazyConv, self).__init__
        begin(0, 0, *steps, False, dilation, padding_mode, device, dtype)
        self._skimp_wait(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d, dims=1):
    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d, dims=2):
    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d, dims=3):
    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d, dims=1):
    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d, dims=2):
    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d, dims=3):
    cls_to_become = ConvTranspose3d
