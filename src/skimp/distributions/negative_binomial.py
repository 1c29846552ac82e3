"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

from skimp import special
from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.bernoulli import Binary, from_logits, from_probs
from skimp.distributions.distribution import parameter
from skimp.distributions.gamma import Gamma
from skimp.distributions.utils import lazy_property
from skimp.nn import functional as F, ops


class NegativeBinomial(Binary):
    """Successes before the r-th failure: p(k) = Gamma(r + k) / (k! Gamma(r)) p^k (1 - p)^r, k >= 0.

    `total_count`, r >= 0, need not be whole; either `probs`, the chance p in [0, 1) of a success,
    or `logits`, log(p / (1 - p)). Numbers or tensors that broadcast to the batch's shape. Drawn
    as Poisson numbers whose rates are gamma numbers.
    """

    total_count = parameter(constraints.greater_than_eq(0))
    probs = parameter(constraints.half_open_interval(0.0, 1.0), from_logits)
    logits = parameter(constraints.real, from_probs)
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._skimp_choose(probs, logits, validate_args, total_count=total_count)
        self.total_count = self.total_count.type_as(self._param)

    @property
    def mean(self) -> Tensor:
        return self.total_count * ops.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / ops.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Gamma:
        return Gamma(self.total_count, ops.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return ops.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        n = self.total_count
        plain = n * F.logsigmoid(-self.logits) + special.xlogy(value, self.probs)
        norm = -ops.lgamma(n + value) + ops.lgamma(1.0 + value) + ops.lgamma(n)
        norm = norm.masked_fill(n + value == 0.0, 0.0)
        return plain - norm
