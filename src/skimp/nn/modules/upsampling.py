"""Upsample and its older names."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.options import options
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module

SAYS = """\
Dtypes: floating point; uint8 for images."""


@options
class Upsample(Module):
    """More pixels, interpolated, to a size or by a factor.

    `align_corners` says where pixels lie: at the corners (True), or at the centres of squares.

    Shape: (N, C, spatial...), one to three spatial dimensions; "linear" is for one, "bilinear" and
    "bicubic" for two, "trilinear" for three, "nearest" and "nearest-exact" for all.
    Raises: in forward, ValueError unless exactly one of size and scale_factor is given, or
    `align_corners` is given for nearest; NotImplementedError for a mode of other ranks.
    Memory: a new tensor.
    """

    size: Any = None
    scale_factor: Any = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None

    def _skimp_set_up(self) -> None:
        self.name = type(self).__name__
        factor = self.scale_factor
        if isinstance(factor, tuple):
            self.scale_factor = tuple(float(f) for f in factor)
        else:
            self.scale_factor = float(factor) if factor else None

    forward = calling(
        "interpolate", "input", "size, scale_factor, mode, align_corners, recompute_scale_factor="
    )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Each pixel takes its nearest neighbour's value.

    Shape: (N, C, H, W).
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Bilinear, corners aligned.

    Shape: (N, C, H, W).
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
