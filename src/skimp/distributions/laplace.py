"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.nn import ops


class Laplace(Distribution):
    """p(x) = exp(-|x - loc| / scale) / (2 scale), for all x.

    `loc`, the mean, and `scale` > 0: numbers or tensors that broadcast to the batch's shape.
    """

    loc = parameter(constraints.real)
    scale = parameter(constraints.positive)
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, loc=loc, scale=scale)

    mean = forwarded("loc")
    mode = forwarded("loc")

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return (2**0.5) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u = self.loc.new_empty(shape).uniform_(finfo(self.loc.dtype).eps - 1, 1)
        return self.loc - self.scale * u.sign() * ops.log1p(-u.abs())

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return -ops.log(2 * self.scale) - ops.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * ops.expm1(-away.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * ops.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + ops.log(2 * self.scale)
