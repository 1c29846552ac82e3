"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import parameter
from skimp.distributions.exponential import Exponential
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import AffineTransform, PowerTransform
from skimp.distributions.utils import broadcast_all, euler_constant
from skimp.nn import ops


class Weibull(TransformedDistribution):
    """p(x) = (c / scale) (x / scale)^(c - 1) exp(-(x / scale)^c), for x >= 0.

    `scale` and `concentration`, c: positive numbers or tensors that broadcast to the batch's
    shape. Drawn as scale e^(1 / c), for an exponential number e.
    """

    scale = parameter(constraints.positive)
    concentration = parameter(constraints.positive)
    support = constraints.positive
    _skimp_expands = ("concentration_reciprocal",)

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(ops.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._skimp_steps(), validate_args=validate_args)

    def _skimp_steps(self) -> list[Any]:
        return [
            PowerTransform(exponent=self.concentration_reciprocal),
            AffineTransform(loc=0, scale=self.scale),
        ]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.transforms = new._skimp_steps()
        return new

    @property
    def mean(self) -> Tensor:
        return self.scale * ops.exp(ops.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Tensor:
        c = self.concentration
        return self.scale * ((c - 1) / c) ** c.reciprocal()

    @property
    def variance(self) -> Tensor:
        r = self.concentration_reciprocal
        return self.scale.pow(2) * (ops.exp(ops.lgamma(1 + 2 * r)) - ops.exp(2 * ops.lgamma(1 + r)))

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + ops.log(self.scale * r) + 1
