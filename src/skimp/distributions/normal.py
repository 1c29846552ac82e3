"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded, parameter
from skimp.distributions.exp_family import ExponentialFamily
from skimp.distributions.utils import standard_normal
from skimp.nn import ops


class Normal(ExponentialFamily):
    """p(x) = exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi)), for all x.

    `loc`, the mean, and `scale`, the standard deviation > 0: numbers or tensors that broadcast to
    the batch's shape. `mean`, `mode` and `stddev` are these tensors, not copies.
    """

    loc = parameter(constraints.real)
    scale = parameter(constraints.positive)
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, loc=loc, scale=scale)

    mean = forwarded("loc")
    mode = forwarded("loc")
    stddev = forwarded("scale")

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return ops.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + standard_normal(shape, self.loc.dtype) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        var = self.scale**2
        return (
            -((value - self.loc) ** 2) / (2 * var)
            - self.scale.log()
            - math.log(math.sqrt(2 * math.pi))
        )

    def cdf(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return 0.5 * (1 + ops.erf((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + ops.log(self.scale)

    _mean_carrier_measure = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.scale.pow(2), -0.5 * self.scale.pow(2).reciprocal()

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -0.25 * x.pow(2) / y + 0.5 * ops.log(-math.pi / y)
