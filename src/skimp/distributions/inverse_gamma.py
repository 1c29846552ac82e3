"""The inverse gamma distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded
from skimp.distributions.gamma import Gamma
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import PowerTransform
from skimp.nn import ops


class InverseGamma(TransformedDistribution):
    """1 / x, for a gamma number x: p(y) = rate^a y^(-a - 1) exp(-rate / y) / Gamma(a), for y > 0.

    `concentration`, a, and `rate`: positive numbers or tensors that broadcast to the batch's
    shape. `mean` is infinite up to a = 1, `variance` up to a = 2.
    """

    concentration = forwarded("base_dist.concentration", constraints.positive)
    rate = forwarded("base_dist.rate", constraints.positive)
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        power = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, power, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        result = self.rate / (self.concentration - 1)
        return ops.where(self.concentration > 1, result, float("inf"))

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        result = self.rate.square() / ((c - 1).square() * (c - 2))
        return ops.where(c > 2, result, float("inf"))

    def entropy(self) -> Tensor:
        c = self.concentration
        return c + self.rate.log() + c.lgamma() - (1 + c) * c.digamma()
