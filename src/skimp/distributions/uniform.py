"""The uniform distribution on an interval."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, parameter
from skimp.nn import ops


class Uniform(Distribution):
    """p(x) = 1 / (high - low), for low <= x < high.

    `low` < `high`: numbers or tensors that broadcast to the batch's shape. `log_prob` is -inf at
    `high`, which the check of arguments lets through. `mode` is nan.
    """

    low = parameter(constraints.dependent(event_dim=0))
    high = parameter(constraints.dependent(event_dim=0))
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, low=low, high=high)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return float("nan") * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        rand = ops.rand(self._extended_shape(sample_shape), dtype=self.low.dtype)
        return self.low + rand * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        above = self.low.le(value).type_as(self.low)
        below = self.high.gt(value).type_as(self.low)
        return ops.log(above.mul(below)) - ops.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return ops.log(self.high - self.low)
