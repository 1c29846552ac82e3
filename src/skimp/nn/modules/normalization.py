"""Normalisation over an example: LayerNorm, GroupNorm, RMSNorm, LocalResponseNorm."""

from __future__ import annotations

import numbers
from typing import Any

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import refuse_cast, require_divisible, require_positive
from skimp._engine.tensor.options import KW_ONLY, InitVar, options
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.nn.normalize import across_channels
from skimp.nn import init
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module

SAYS = """\
Dtypes: floating point; the result's is the input's.
Raises: RuntimeError in forward for shapes that don't fit.
Memory: a new tensor."""


@options
class LocalResponseNorm(Module):
    """Divided by (k + alpha * mean of the squares of `size` neighbouring channels) ** beta.

    Shape: (N, C, ...), and the same for the result.
    Raises: ValueError in forward for less than three dimensions.
    Source: Krizhevsky et al. 2012, ImageNet classification with deep convolutional networks.
    """

    _skimp_shows = "size, alpha=, beta=, k="
    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    forward = calling("local_response_norm", "input", "size, alpha, beta, k")


class CrossMapLRN2d(LocalResponseNorm):
    """The older name of LocalResponseNorm for images.

    Shape: (N, C, H, W), and the same for the result.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        refuse_cast(dtypes.float32, input._dtype)
        return across_channels(input, self.size, self.alpha, self.beta, self.k)  # type: ignore[no-any-return]


def _shape_of(normalized_shape: Any) -> tuple[int, ...]:
    if isinstance(normalized_shape, numbers.Integral):
        return (int(normalized_shape),)
    return tuple(normalized_shape)


def _begin(module: Any) -> None:
    """Scale 1, shift 0, where there are such."""
    if module.weight is not None:
        init.ones_(module.weight)
    if getattr(module, "bias", None) is not None:
        init.zeros_(module.bias)


@options
class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimensions, then scale and shift, element by element.

    The variance is that of a population: divided by n. The statistics are the example's own, in
    evaluation too.

    Shape: (..., *normalized_shape), and the same for the result; an int stands for one dimension.
    Raises: RuntimeError in forward where the input does not end in normalized_shape.
    Source: Ba et al. 2016, Layer normalization.
    """

    _skimp_shows = "normalized_shape, eps=, elementwise_affine=, bias="
    normalized_shape: Any
    eps: float = 1e-5
    elementwise_affine: bool = True
    bias: InitVar[bool] = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, bias: bool, device: Any, dtype: Any) -> None:
        self.normalized_shape = shape = _shape_of(self.normalized_shape)
        weight = shape if self.elementwise_affine else None
        self._skimp_new_parameters(device, dtype, weight=weight, bias=weight if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.elementwise_affine:
            _begin(self)

    forward = calling("layer_norm", "input", "normalized_shape, weight, bias, eps")


@options
class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels, then scale and shift for each channel.

    Shape: (N, num_channels, ...), and the same for the result.
    Raises: ValueError for groups that are not positive or don't divide the channels; RuntimeError
    in forward for other channels.
    Source: Wu and He 2018, Group normalization.
    """

    _skimp_shows = "num_groups, num_channels, eps=, affine=, bias="
    num_groups: int
    num_channels: int
    eps: float = 1e-5
    affine: bool = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None
    _: KW_ONLY
    bias: InitVar[bool] = True

    def _skimp_set_up(self, device: Any, dtype: Any, bias: bool) -> None:
        groups, channels = self.num_groups, self.num_channels
        require_positive(groups, "num_groups must be a positive integer, got {got}")
        says = f"num_channels ({channels}) must be divisible by num_groups ({groups})"
        require_divisible(channels, groups, says)
        weight = channels if self.affine else None
        self._skimp_new_parameters(device, dtype, weight=weight, bias=weight if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.affine:
            _begin(self)

    forward = calling("group_norm", "input", "num_groups, weight, bias, eps")


@options
class RMSNorm(Module):
    """Divided by the root of the mean square over the last dimensions, then scaled.

    eps=None takes the dtype's own epsilon, in the dtype of the computation.

    Shape: (..., *normalized_shape), and the same for the result; an int stands for one dimension.
    Raises: RuntimeError in forward where the input does not end in normalized_shape.
    Source: Zhang and Sennrich 2019, Root mean square layer normalization.
    """

    _skimp_shows = "normalized_shape, eps=, elementwise_affine="
    normalized_shape: Any
    eps: float | None = None
    elementwise_affine: bool = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, device: Any, dtype: Any) -> None:
        self.normalized_shape = shape = _shape_of(self.normalized_shape)
        self._skimp_new_parameters(device, dtype, weight=shape if self.elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        if self.elementwise_affine:
            _begin(self)

    forward = calling("rms_norm", "input", "normalized_shape, weight, eps")
