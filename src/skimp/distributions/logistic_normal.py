"""The logistic-normal distribution."""

from __future__ import annotations

from typing import Any

from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded
from skimp.distributions.normal import Normal
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import StickBreakingTransform


class LogisticNormal(TransformedDistribution):
    """Points of the simplex of n + 1 elements: n normal numbers through `StickBreakingTransform`.

    `loc` and `scale` > 0: numbers or tensors that broadcast to the batch's shape and one dimension
    of n elements; numbers are one element.
    """

    loc = forwarded("base_dist.base_dist.loc", constraints.real)
    scale = forwarded("base_dist.base_dist.scale", constraints.positive)
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)
