"""Modules that rearrange: Flatten, Unflatten, Fold, Unfold, PixelShuffle, PixelUnshuffle,
ChannelShuffle.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.checks import require_type
from skimp._engine.tensor.options import options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module

SAYS = """\
Dtypes: any; the result's is the input's."""


@options
class Flatten(Module):
    """Dimensions from start_dim to end_dim as one; the batch dimension stays by default.

    Shape: (N, a, b, ...) gives (N, a b ...).
    Raises: IndexError in forward for a dim that is not there, RuntimeError if start is after end.
    Memory: a view where the strides allow it, else a copy.
    """

    _skimp_shows = "start_dim=, end_dim="
    start_dim: int = 1
    end_dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


@options
class Unflatten(Module):
    """One dimension as several; -1 stands for what is left.

    Shape: (..., n, ...) gives (..., *unflattened_size, ...), whose product is n.
    Raises: TypeError for a dim that is no int (names of dimensions are not here) or sizes that are
    no tuple or list of ints; RuntimeError in forward for sizes that don't multiply to n.
    Memory: a view.
    """

    _skimp_shows = "dim=, unflattened_size="
    dim: Any
    unflattened_size: Any

    def _skimp_set_up(self) -> None:
        require_type(self.dim, int, "invalid argument type for dim parameter")
        sizes = self.unflattened_size
        if not isinstance(sizes, (tuple, list)):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(sizes).__name__}"
            )
        says = "unflattened_size must be tuple of ints, but found element of type {got} at pos "
        for i, n in enumerate(sizes):
            require_type(n, int, f"{says}{i}")

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)


@options
class Fold(Module):
    """Overlapping patches added up to an image: where they overlap, sums.

    Shape: (N, C k, L) or (C k, L), k the kernel's elements and L the number of patches, to (N, C,
    *output_size).
    Raises: RuntimeError in forward where L or C k don't fit.
    Memory: a new tensor.
    """

    _skimp_shows = "output_size=, kernel_size=, dilation=, padding=, stride="
    output_size: Any
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1

    forward = calling("fold", "input", "output_size, kernel_size, dilation, padding, stride")


@options
class Unfold(Module):
    """Overlapping patches of an image as columns: im2col.

    Shape: (N, C, H, W) or (C, H, W) to (N, C k, L), k the kernel's elements, L the patches.
    Raises: RuntimeError in forward where no patch fits.
    Memory: a new tensor, about k times the input.
    """

    _skimp_shows = "kernel_size=, dilation=, padding=, stride="
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1

    forward = calling("unfold", "input", "kernel_size, dilation, padding, stride")


@options
class PixelShuffle(Module):
    """Channels as pixels.

    Shape: (..., C r r, H, W) to (..., C, H r, W r), r the factor.
    Raises: RuntimeError in forward for channels that r r does not divide.
    Memory: a new tensor.
    Source: Shi et al. 2016, sub-pixel convolution.
    """

    _skimp_shows = "upscale_factor="
    upscale_factor: int

    forward = calling("pixel_shuffle", "input", "upscale_factor")


@options
class PixelUnshuffle(Module):
    """Pixels as channels: the inverse of PixelShuffle.

    Shape: (..., C, H r, W r) to (..., C r r, H, W), r the factor.
    Raises: RuntimeError in forward for sizes that r does not divide.
    Memory: a new tensor.
    Source: Shi et al. 2016, sub-pixel convolution.
    """

    _skimp_shows = "downscale_factor="
    downscale_factor: int

    forward = calling("pixel_unshuffle", "input", "downscale_factor")


@options
class ChannelShuffle(Module):
    """Channels dealt out over groups: (a a b b) becomes (a b a b).

    Shape: (N, C, spatial...), and the same for the result.
    Raises: RuntimeError in forward for channels that the groups don't divide.
    Memory: a new tensor.
    Source: Zhang et al. 2018, ShuffleNet.
    """

    _skimp_shows = "groups="
    groups: int

    forward = calling("channel_shuffle", "input", "groups")
