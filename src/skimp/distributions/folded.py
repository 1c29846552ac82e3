"""Absolute values of numbers that are symmetric about 0."""

from __future__ import annotations

import math

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.nn import ops


class Folded(TransformedDistribution):
    """|x|, for x of a base distribution with location 0: twice its density, from 0 on."""

    scale = forwarded("base_dist.scale", constraints.positive)
    support = constraints.nonnegative
    has_rsample = True

    @property
    def mode(self) -> Tensor:
        return ops.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return self._skimp_folded_log_prob(value)

    def _skimp_folded_log_prob(self, value: Tensor) -> Tensor:
        log_prob = self.base_dist.log_prob(value) + math.log(2)
        return ops.where(value >= 0, log_prob, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
