"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from skimp import special
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.random.shapes import _standard_gamma
from skimp.distributions import constraints
from skimp.distributions.distribution import parameter
from skimp.distributions.exp_family import ExponentialFamily
from skimp.nn import ops


class Gamma(ExponentialFamily):
    """p(x) = rate^a x^(a - 1) exp(-rate x) / Gamma(a), for x > 0.

    `concentration`, the shape a, and `rate`, the inverse of the scale: positive numbers or tensors
    that broadcast to the batch's shape. A draw that would be 0 is the smallest normal
    number, and has its implicit derivative by the shape.

    Source: Marsaglia and Tsang, A simple method for generating gamma variables, 2000.
    """

    concentration = parameter(constraints.positive)
    rate = parameter(constraints.positive)
    support: Any = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = _standard_gamma(self.concentration.expand(shape))
        value = drawn / self.rate.expand(shape)
        value.detach().clamp_(min=finfo(value.dtype).tiny)  # never 0: log_prob has its logarithm
        return value

    def log_prob(self, value: Any) -> Tensor:
        value = ops.as_tensor(value, dtype=self.rate.dtype)
        self._skimp_check(value)
        return (
            special.xlogy(self.concentration, self.rate)
            + special.xlogy(self.concentration - 1, value)
            - self.rate * value
            - ops.lgamma(self.concentration)
        )

    def cdf(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        c = self.concentration
        return c - ops.log(self.rate) + ops.lgamma(c) + (1.0 - c) * ops.digamma(c)

    _mean_carrier_measure = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return ops.lgamma(x + 1) + (x + 1) * ops.log(-y.reciprocal())
