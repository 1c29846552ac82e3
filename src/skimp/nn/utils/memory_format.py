"""The order in memory of convolutions' weights."""

from __future__ import annotations

from typing import Any, TypeVar

from skimp.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from skimp.nn.modules.module import Module

M = TypeVar("M", bound=Module)


def _converted(module: M, kinds: tuple[type[Module], ...], memory_format: Any) -> M:
    for inner in module.modules():
        if isinstance(inner, kinds):
            weight: Any = inner.weight
            weight.data = weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Bring the weights of all 2-d convolutions into a memory format; the module itself.

    Shape: weights of four dimensions.
    Memory: weights are replaced by copies in the format; the parameters stay the same objects.
    """
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Bring the weights of all 3-d convolutions into a memory format; the module itself.

    Shape: weights of five dimensions.
    Memory: weights are replaced by copies in the format; the parameters stay the same objects.
    """
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)
