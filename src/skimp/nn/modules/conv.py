"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.checks import (
    require,
    require_divisible,
    require_not_negative,
    require_one_of,
    require_positive,
)
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F, init
from skimp.nn.modules.by_rank import ByRank
from skimp.nn.modules.tree import held
from skimp.nn.modules.utils import ntuple, reverse_repeat_tuple, single

_MODES = {"zeros", "reflect", "replicate", "circular"}
_STRINGS = {"same", "valid"}
_WEIGHTS = ("weight", "bias")
_CONVOLUTIONS = ("", "conv1d", "conv2d", "conv3d")  # by rank, for `self` may have no class's names


class _ConvNd(ByRank):
    """A convolution's weights and hyperparameters; all sizes are tuples here."""

    _skimp_owns_init = True
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: Any,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _around(padding, kernel_size, dilation)
        weight = _weight_shape(in_channels, out_channels, groups, transposed, kernel_size)
        bias_shape = out_channels if bias else None
        self._skimp_new_parameters(device, dtype, weight=weight, bias=bias_shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias anew."""
        init._linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        zeros, ones = (0,) * len(self.kernel_size), (1,) * len(self.kernel_size)
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        ]
        if self.padding != zeros:
            parts.append(f"padding={self.padding}")
        if self.dilation != ones:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != zeros:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


def _weight_shape(
    inputs: int, outputs: int, groups: int, transposed: bool, kernel: tuple[int, ...]
) -> tuple[int, ...]:
    if transposed:
        return inputs, outputs // groups, *kernel
    return outputs, inputs // groups, *kernel


def _check(
    inputs: int, outputs: int, stride: tuple[int, ...], padding: Any, groups: int, mode: str
) -> None:
    require_positive(groups, "groups must be a positive integer")
    require_not_negative(inputs, "in_channels must be a positive integer, got {got}")
    require_divisible(inputs, groups, "in_channels must be divisible by groups")
    require_divisible(outputs, groups, "out_channels must be divisible by groups")
    if isinstance(padding, str):
        says = "Invalid padding string {got!r}, should be one of {wanted}"
        require_one_of(padding, _STRINGS, says)
        strided = padding == "same" and any(s != 1 for s in stride)
        require(not strided, "padding='same' is not supported for strided convolutions")
    says = "padding_mode must be one of {wanted}, but got padding_mode='{got}'"
    require_one_of(mode, _MODES, says)


def _around(padding: Any, kernel_size: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    """Padding in the order of `F.pad`, the last dimension first."""
    if not isinstance(padding, str):
        return reverse_repeat_tuple(padding, 2)
    found = [0, 0] * len(kernel_size)
    if padding == "same":
        for i, (d, k) in enumerate(zip(reversed(dilation), reversed(kernel_size), strict=True)):
            total = d * (k - 1)
            found[2 * i], found[2 * i + 1] = total // 2, total - total // 2
    return found


class _ForwardConv(_ConvNd):
    """A convolution in `_skimp_dims` dimensions, made as PyTorch's are."""

    _skimp_family = "conv"
    _skimp_about = """Cross-correlation of channels with learnt kernels, plus bias.

    Shape: {input}, C in_channels; each length L becomes
    floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1. weight is (out_channels,
    in_channels / groups, *kernel_size), bias (out_channels,).
    Dtypes: input, weight and bias alike.
    Raises: ValueError for options that don't fit each other; RuntimeError in forward for other
    ranks, channels and dtypes, and for a kernel longer than the padded input.
    Memory: a new tensor.
    """

    def __init__(
        self,
        in_channels: int,
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
        size = ntuple(self._skimp_dims)
        padding = padding if isinstance(padding, str) else size(padding)
        steps = (size(stride), padding, size(dilation), False, size(0), groups)
        rest = (*steps, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, size(kernel_size), *rest)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        conv: Any = getattr(F, _CONVOLUTIONS[len(self.kernel_size)])
        if self.padding_mode == "zeros":
            return conv(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)  # type: ignore[no-any-return]
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        none = (0,) * len(self.kernel_size)
        return conv(padded, weight, bias, self.stride, none, self.dilation, self.groups)  # type: ignore[no-any-return]

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, *held(self, _WEIGHTS))


class Conv1d(_ForwardConv, dims=1):
    pass


class Conv2d(_ForwardConv, dims=2):
    """Cross-correlation of channels with learnt kernels, plus bias.

    "same" pads so that the output is as long as the input, one more on the right where the sum is
    odd; a stride is refused with it.

    >>> torch.nn.Conv2d(3, 8, 3, padding="same")(torch.ones(1, 3, 5, 5)).shape
    torch.Size([1, 8, 5, 5])

    Shape: (N, C, H, W) or (C, H, W), C in_channels; each length L becomes
    floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1. weight is (out_channels,
    in_channels / groups, *kernel_size), bias (out_channels,).
    Dtypes: input, weight and bias alike.
    Raises: ValueError for options that don't fit each other; RuntimeError in forward for other
    ranks, channels and dtypes, and for a kernel longer than the padded input.
    Memory: a new tensor.
    """


class Conv3d(_ForwardConv, dims=3):
    pass


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution in `_skimp_dims` dimensions: the gradient of a convolution with
    respect to its input.
    """

    _skimp_family = "conv_transpose"
    _skimp_about = """The gradient of a convolution with respect to its input, plus bias.

    Shape: {input}, C in_channels; each length L becomes
    (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1, or what
    `output_size` of forward chooses among those that a convolution brings to L. weight is
    (in_channels, out_channels / groups, *kernel_size).
    Dtypes: input, weight and bias alike.
    Raises: ValueError for options that don't fit each other, padding modes but "zeros", and an
    `output_size` out of range; RuntimeError in forward for other ranks, channels and dtypes.
    Memory: a new tensor.
    Source: Zeiler et al. 2010, Deconvolutional networks.
    """

    def __init__(
        self,
        in_channels: int,
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
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        size = ntuple(self._skimp_dims)
        steps = (size(stride), size(padding), size(dilation), True, size(output_padding), groups)
        rest = (*steps, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, size(kernel_size), *rest)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        sizes = (self.stride, self.padding, self.kernel_size, self._skimp_dims, self.dilation)
        extra = self._output_padding(input, output_size, *sizes)
        f: Any = getattr(F, self._skimp_function)
        steps = (self.stride, self.padding, extra, self.groups, self.dilation)
        return f(input, *held(self, _WEIGHTS), *steps)  # type: ignore[no-any-return]

    def _output_padding(
        self,
        input: Tensor,
        output_size: Any,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> Any:
        """What an output of that size needs. The name is PyTorch's, for subclasses call it."""
        if output_size is None:
            return single(self.output_padding)
        dims = num_spatial_dims
        batched = input.dim() == dims + 2
        before = 2 if batched else 1
        wanted = output_size
        if len(wanted) == before + dims:
            wanted = wanted[before:]
        if len(wanted) != dims:
            raise ValueError(
                f"ConvTranspose{dims}D: for {input.dim()}D input, output_size must have {dims} or "
                f"{before + dims} elements (got {len(output_size)})"
            )
        apart = (1,) * dims if dilation is None else dilation
        least = [
            (input.size(d + before) - 1) * stride[d]
            - 2 * padding[d]
            + (apart[d] * (kernel_size[d] - 1) + 1)
            for d in range(dims)
        ]
        most = [least[d] + stride[d] - 1 for d in range(dims)]
        for size, low, high in zip(wanted, least, most, strict=True):
            if not low <= size <= high:
                raise ValueError(
                    f"requested an output size of {wanted}, but valid sizes range from {least} to "
                    f"{most} (for an input of {input.size()[2:]})"
                )
        return [w - m for w, m in zip(wanted, least, strict=True)]


class ConvTranspose1d(_ConvTransposeNd, dims=1):
    pass


class ConvTranspose2d(_ConvTransposeNd, dims=2):
    pass


class ConvTranspose3d(_ConvTransposeNd, dims=3):
    pass
