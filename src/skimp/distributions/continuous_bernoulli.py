"""The continuous Bernoulli distribution (Loaiza-Ganem and Cunningham, 2019)."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.bernoulli import Binary, from_logits, from_probs
from skimp.distributions.distribution import parameter
from skimp.distributions.exp_family import ExponentialFamily
from skimp.distributions.utils import clamp_probs
from skimp.nn import functional as F, ops


class ContinuousBernoulli(Binary, ExponentialFamily):
    """p(x) = C(p) p^x (1 - p)^(1 - x), for x in [0, 1]: a Bernoulli likelihood of numbers.

    Either `probs`, p in [0, 1], or `logits`, log(p / (1 - p)): a number or a tensor of the
    batch's shape; p is not the mean. Between `lims`, where the formulas lose their digits, Taylor
    series stand in.

    Source: Loaiza-Ganem and Cunningham, The continuous Bernoulli, 2019.
    """

    probs = parameter(constraints.unit_interval, from_logits)
    logits = parameter(constraints.real, from_probs)
    support = constraints.unit_interval
    has_rsample = True
    _skimp_keeps = ("_lims",)

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        self._skimp_choose(probs, logits, validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    def _outside_unstable_region(self) -> Tensor:
        """Where the formulas are stable: away from probs = 1/2."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        """probs, with the unstable ones moved to the limit."""
        return ops.where(
            self._outside_unstable_region(), self.probs, self._lims[0] * ops.ones_like(self.probs)
        )

    def _cont_bern_log_norm(self) -> Tensor:
        cut = self._cut_probs()
        low = ops.where(cut <= 0.5, cut, ops.zeros_like(cut))
        high = ops.where(cut >= 0.5, cut, ops.ones_like(cut))
        log_norm = ops.log(ops.abs(ops.log1p(-cut) - ops.log(cut))) - ops.where(
            cut <= 0.5, ops.log1p(-2.0 * low), ops.log(2.0 * high - 1.0)
        )
        x = ops.pow(self.probs - 0.5, 2)
        taylor = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return ops.where(self._outside_unstable_region(), log_norm, taylor)

    @property
    def mean(self) -> Tensor:
        cut = self._cut_probs()
        inside = cut / (2.0 * cut - 1.0) + 1.0 / (ops.log1p(-cut) - ops.log(cut))
        x = self.probs - 0.5
        taylor = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * ops.pow(x, 2)) * x
        return ops.where(self._outside_unstable_region(), inside, taylor)

    @property
    def stddev(self) -> Tensor:
        return ops.sqrt(self.variance)

    @property
    def variance(self) -> Tensor:
        cut = self._cut_probs()
        inside = cut * (cut - 1.0) / ops.pow(1.0 - 2.0 * cut, 2) + 1.0 / ops.pow(
            ops.log1p(-cut) - ops.log(cut), 2
        )
        x = ops.pow(self.probs - 0.5, 2)
        taylor = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return ops.where(self._outside_unstable_region(), inside, taylor)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(ops.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        plain = -F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return plain + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        cut = self._cut_probs()
        grown = ops.pow(cut, value) * ops.pow(1.0 - cut, 1.0 - value) + cut - 1.0
        inside = ops.where(self._outside_unstable_region(), grown / (2.0 * cut - 1.0), value)
        ones = ops.ones_like(inside)
        return ops.where(
            ops.le(value, 0.0), ops.zeros_like(inside), ops.where(ops.ge(value, 1.0), ones, inside)
        )

    def icdf(self, value: Tensor) -> Tensor:
        cut = self._cut_probs()
        log_rest = ops.log1p(-cut)
        inside = (ops.log1p(-cut + value * (2.0 * cut - 1.0)) - log_rest) / (
            ops.log(cut) - log_rest
        )
        return ops.where(self._outside_unstable_region(), inside, value)

    def entropy(self) -> Tensor:
        log0, log1 = ops.log1p(-self.probs), ops.log(self.probs)
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    _mean_carrier_measure = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        """log((exp(x) - 1) / x), from a series where x is near 0."""
        x = natural_params[0]
        far = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = ops.where(far, x, (self._lims[0] - 0.5) * ops.ones_like(x))
        log_norm = ops.log(ops.abs(ops.expm1(cut))) - ops.log(ops.abs(cut))
        taylor = 0.5 * x + ops.pow(x, 2) / 24.0 - ops.pow(x, 4) / 2880.0
        return ops.where(far, log_norm, taylor)
