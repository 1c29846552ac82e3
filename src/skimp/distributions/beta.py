"""The beta distribution."""

from __future__ import annotations

from numbers import Real
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.dirichlet import Dirichlet
from skimp.distributions.distribution import forwarded
from skimp.distributions.exp_family import ExponentialFamily
from skimp.distributions.utils import broadcast_all
from skimp.nn import ops


class Beta(ExponentialFamily):
    """p(x) = x^(a - 1) (1 - x)^(b - 1) / B(a, b), for x in [0, 1].

    `concentration1` is a, `concentration0` is b: positive numbers or tensors that broadcast to
    the batch's shape. It is a Dirichlet distribution of two chances, and drawn as one.
    """

    concentration1 = forwarded(lambda d: d._dirichlet.concentration[..., 0], constraints.positive)
    concentration0 = forwarded(lambda d: d._dirichlet.concentration[..., 1], constraints.positive)
    support = constraints.unit_interval
    has_rsample = True
    _skimp_expands = ("_dirichlet",)

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        if isinstance(concentration1, Real) and isinstance(concentration0, Real):
            both = ops.tensor([float(concentration1), float(concentration0)])
        else:
            both = ops.stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    mode = forwarded(lambda d: d._dirichlet.mode[..., 0])

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return self._dirichlet.log_prob(ops.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    _mean_carrier_measure = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return ops.lgamma(x) + ops.lgamma(y) - ops.lgamma(x + y)
