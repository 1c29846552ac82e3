"""The generalised Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.nn import ops


class GeneralizedPareto(Distribution):
    """What exceeds a high threshold: p(x) = (1 + c z)^(-1 - 1 / c) / scale, z = (x - loc) / scale.

    `loc`, the threshold, `scale` > 0, and `concentration`, c: numbers or tensors that broadcast
    to the batch's shape. The support is x >= loc, and for c < 0 up to loc - scale / c; with c = 0
    the density is exp(-z) / scale. `mean` is infinite from c = 1 on, `variance` from 1/2.
    """

    loc = parameter(constraints.real)
    scale = parameter(constraints.positive)
    concentration = parameter(constraints.real)
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self._skimp_begin(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        bounded = self.concentration < 0
        upper = ops.where(bounded, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, upper)

    def _skimp_standardised(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The value in units of `scale`, whether the shape is 0, and the shape without zeros."""
        flat = ops.isclose(self.concentration, ops.zeros_like(self.concentration))
        shape = ops.where(flat, ops.ones_like(self.concentration), self.concentration)
        return (value - self.loc) / self.scale, flat, shape

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(ops.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        z, flat, shape = self._skimp_standardised(value)
        curved = (1 + 1 / shape) * ops.log1p(shape * z)
        return -self.scale.log() - ops.where(flat, z, curved)

    def log_survival_function(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        z, flat, shape = self._skimp_standardised(value)
        return ops.where(flat, -z, -ops.log1p(shape * z) / shape)

    def log_cdf(self, value: Tensor) -> Tensor:
        return ops.log1p(-ops.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return ops.exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        _, flat, shape = self._skimp_standardised(self.loc)
        log_left = ops.log1p(-value)
        return self.loc + self.scale * ops.where(
            flat, -log_left, ops.expm1(-shape * log_left) / shape
        )

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        inside = self.loc + self.scale / (1 - c)
        return ops.where(c < 1, inside, ops.full_like(inside, math.inf))

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        inside = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return ops.where(c < 0.5, inside, ops.full_like(inside, math.inf))

    mode = forwarded("loc")

    def entropy(self) -> Tensor:
        return ops.log(self.scale) + self.concentration + 1
