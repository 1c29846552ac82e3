"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded, parameter
from skimp.distributions.exp_family import ExponentialFamily
from skimp.nn import ops


class Poisson(ExponentialFamily):
    """p(k) = rate^k exp(-rate) / k!, for k = 0, 1, 2, ...: events in a unit, `rate` on average.

    `rate` >= 0: a number or a tensor of the batch's shape. Draws are whole numbers of its dtype.
    """

    rate = parameter(constraints.nonnegative)
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, rate=rate)

    mean = forwarded("rate")

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    variance = forwarded("rate")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return ops.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        rate, value = ops.broadcast_tensors(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (ops.log(self.rate),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return ops.exp(natural_params[0])
