"""The Kumaraswamy distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import parameter
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import AffineTransform, PowerTransform
from skimp.distributions.uniform import Uniform
from skimp.distributions.utils import broadcast_all, euler_constant
from skimp.nn import ops


def _moment(a: Tensor, b: Tensor, n: int) -> Tensor:
    first = 1 + n / a
    return ops.exp(ops.lgamma(first) + ops.lgamma(b) - ops.lgamma(first + b)) * b


class Kumaraswamy(TransformedDistribution):
    """p(x) = a b x^(a - 1) (1 - x^a)^(b - 1), for x in [0, 1]: like the beta distribution.

    `concentration1`, a, and `concentration0`, b: positive numbers or tensors that broadcast to
    the batch's shape. `mode` is nan where a or b is below 1. The cdf has a closed inverse.

    Source: Kumaraswamy, A generalized probability density function for double-bounded random
    processes, 1980.
    """

    concentration1 = parameter(constraints.positive)
    concentration0 = parameter(constraints.positive)
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            ops.full_like(self.concentration0, 0),
            ops.full_like(self.concentration0, 1),
            validate_args=validate_args,
        )
        steps = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return _moment(self.concentration1, self.concentration0, 1)

    @property
    def mode(self) -> Tensor:
        c1, c0 = self.concentration1, self.concentration0
        log_mode = c0.reciprocal() * (-c0).log1p() - (-c0 * c1).log1p()
        log_mode[(c0 < 1) | (c1 < 1)] = float("nan")
        return log_mode.exp()

    @property
    def variance(self) -> Tensor:
        return _moment(self.concentration1, self.concentration0, 2) - ops.pow(self.mean, 2)

    def entropy(self) -> Tensor:
        t1, t0 = 1 - self.concentration1.reciprocal(), 1 - self.concentration0.reciprocal()
        harmonic = ops.digamma(self.concentration0 + 1) + euler_constant
        return t0 + t1 * harmonic - ops.log(self.concentration1) - ops.log(self.concentration0)
