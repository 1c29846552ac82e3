"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions.folded import Folded
from skimp.distributions.normal import Normal
from skimp.distributions.transforms import AbsTransform


class HalfNormal(Folded):
    """p(x) = sqrt(2 / pi) exp(-(x / scale)^2 / 2) / scale, for x >= 0.

    `scale` > 0, the deviation of the normal number: a number or a tensor of the batch's shape.
    """

    _skimp_expands = ()

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(
            Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args
        )

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)
