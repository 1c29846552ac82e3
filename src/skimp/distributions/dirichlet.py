"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp._ops.random.shapes import _sample_dirichlet
from skimp.distributions import constraints
from skimp.distributions.distribution import parameter
from skimp.distributions.exp_family import ExponentialFamily
from skimp.nn import ops


class Dirichlet(ExponentialFamily):
    """Vectors of chances: p(x) = Gamma(sum(a)) prod(x_i^(a_i - 1) / Gamma(a_i)), x in the simplex.

    `concentration`, a: a positive tensor of the batch's shape and one dimension, the event
    (ValueError without one); kept, not copied. Drawn as gamma numbers divided by their sum.
    """

    concentration = parameter(constraints.independent(constraints.positive, 1))
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return _sample_dirichlet(self.concentration.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        c = self.concentration
        return ops.xlogy(c - 1.0, value).sum(-1) + ops.lgamma(c.sum(-1)) - ops.lgamma(c).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        less = (self.concentration - 1).clamp(min=0.0)
        mode = less / less.sum(-1, True)
        corner = (self.concentration < 1).all(dim=-1)
        best = mode[corner].argmax(dim=-1)
        mode[corner] = ops.eye(mode.shape[-1], dtype=mode.dtype)[best]
        return mode

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Tensor:
        k = self.concentration.size(-1)
        c, total = self.concentration, self.concentration.sum(-1)
        return (
            ops.lgamma(c).sum(-1)
            - ops.lgamma(total)
            - (k - total) * ops.digamma(total)
            - ((c - 1.0) * ops.digamma(c)).sum(-1)
        )

    _mean_carrier_measure = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x = natural_params[0]
        return x.lgamma().sum(-1) - ops.lgamma(x.sum(-1))
