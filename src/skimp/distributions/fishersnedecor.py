"""Fisher and Snedecor's F distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, parameter
from skimp.distributions.gamma import Gamma
from skimp.nn import ops


class FisherSnedecor(Distribution):
    """Fisher and Snedecor's F: the ratio of two chi-squared numbers, each divided by its degrees.

    p(x) = (d1 / d2)^(d1 / 2) x^(d1 / 2 - 1) (1 + d1 x / d2)^(-(d1 + d2) / 2) / B(d1 / 2, d2 / 2),
    for x > 0. `df1` and `df2`, the degrees of freedom: positive numbers or tensors that broadcast
    to the batch's shape. `mean` is nan up to df2 = 2, `variance` up to 4, `mode` up to df1 = 2.
    """

    df1 = parameter(constraints.positive)
    df2 = parameter(constraints.positive)
    support = constraints.positive
    has_rsample = True
    _skimp_expands = ("_gamma1", "_gamma2")

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._skimp_begin(validate_args, df1=df1, df2=df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)

    @property
    def mean(self) -> Tensor:
        df2 = self.df2.clone()
        df2[df2 <= 2] = math.nan
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        mode[self.df1 <= 2] = math.nan
        return mode

    @property
    def variance(self) -> Tensor:
        df2 = self.df2.clone()
        df2[df2 <= 4] = math.nan
        spread = 2 * df2.pow(2) * (self.df1 + df2 - 2)
        return spread / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        # both have mean 1/2, so the ratio's expectation is near 1
        x1 = self._gamma1.rsample(sample_shape).view(shape)
        x2 = self._gamma2.rsample(sample_shape).view(shape)
        tiny = finfo(x2.dtype).tiny
        x2.clamp_(min=tiny)
        y = x1 / x2
        y.clamp_(min=tiny)
        return y

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        ratio, half1, half2 = self.df1 / self.df2, self.df1 * 0.5, self.df2 * 0.5
        t1 = (half1 + half2).lgamma() - half1.lgamma() - half2.lgamma()
        t2 = half1 * ratio.log() + (half1 - 1) * ops.log(value)
        return t1 + t2 - (half1 + half2) * ops.log1p(ratio * value)
