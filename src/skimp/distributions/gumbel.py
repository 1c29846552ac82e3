"""The Gumbel distribution."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded, parameter
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import AffineTransform, ExpTransform
from skimp.distributions.uniform import Uniform
from skimp.distributions.utils import broadcast_all, euler_constant
from skimp.nn import ops


class Gumbel(TransformedDistribution):
    """The largest of many numbers: p(x) = exp(-z - exp(-z)) / scale, z = (x - loc) / scale.

    `loc`, the mode, and `scale` > 0: numbers or tensors that broadcast to the batch's shape. The
    support is all x. Drawn as loc - scale log(-log u), for a uniform u.
    """

    loc = parameter(constraints.real)
    scale = parameter(constraints.positive)
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = finfo(self.loc.dtype)
        if isinstance(loc, Number) and isinstance(scale, Number):
            base = Uniform(info.tiny, 1 - info.eps, validate_args=validate_args)
        else:
            base = Uniform(
                ops.full_like(self.loc, info.tiny),
                ops.full_like(self.loc, 1 - info.eps),
                validate_args=validate_args,
            )
        steps = [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-ops.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=loc, scale=-self.scale),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    mode = forwarded("loc")

    @property
    def stddev(self) -> Tensor:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
