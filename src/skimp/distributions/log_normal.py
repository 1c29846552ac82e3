"""The log-normal distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded
from skimp.distributions.normal import Normal
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import ExpTransform


class LogNormal(TransformedDistribution):
    """p(x) = exp(-((log x - loc) / scale)^2 / 2) / (x scale sqrt(2 pi)), for x > 0.

    `loc` and `scale` > 0, the mean and the standard deviation of the logarithm: numbers or tensors
    that broadcast to the batch's shape.
    """

    loc = forwarded("base_dist.loc", constraints.real)
    scale = forwarded("base_dist.scale", constraints.positive)
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
