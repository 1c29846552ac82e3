"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded, parameter
from skimp.distributions.exponential import Exponential
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import AffineTransform, ExpTransform
from skimp.distributions.utils import broadcast_all


class Pareto(TransformedDistribution):
    """p(x) = alpha scale^alpha / x^(alpha + 1), for x >= scale.

    `scale` > 0, the least value, and `alpha` > 0, how fast the tail falls: numbers or tensors that
    broadcast to the batch's shape. `mean` is infinite up to alpha = 1, `variance` up to 2.
    """

    alpha = parameter(constraints.positive)
    scale = parameter(constraints.positive)

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        steps = [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(base, steps, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # infinite up to 1
        return a * self.scale / (a - 1)

    mode = forwarded("scale")

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)  # infinite up to 2
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
