"""The Cauchy (Lorentz) distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.nn import ops


class Cauchy(Distribution):
    """p(x) = 1 / (pi s (1 + ((x - loc) / s)^2)), for all x; it has no mean and no variance.

    `loc`, the median, and `scale`, s > 0: numbers or tensors that broadcast to the batch's shape.
    `mean` is nan, `variance` infinite.
    """

    loc = parameter(constraints.real)
    scale = parameter(constraints.positive)
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self._skimp_full(math.nan, self.loc)

    mode = forwarded("loc")

    @property
    def variance(self) -> Tensor:
        return self._skimp_full(math.inf, self.loc)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_()
        return self.loc + eps * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        spread = (((value - self.loc) / self.scale) ** 2).log1p()
        return -math.log(math.pi) - self.scale.log() - spread

    def cdf(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return ops.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return ops.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
