"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.chi2 import Chi2
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.distributions.utils import standard_normal
from skimp.nn import ops


class StudentT(Distribution):
    """Student's t: p(x) = C (1 + z^2 / df)^(-(df + 1) / 2) / scale, z = (x - loc) / scale.

    C = Gamma((df + 1) / 2) / (Gamma(df / 2) sqrt(pi df)); the support is all x. `df` > 0, the
    degrees of freedom, `loc` and `scale` > 0: numbers or tensors that broadcast to the batch's
    shape. `mean` is nan up to df = 1; `variance` is infinite up to 2, and nan up to 1.
    """

    df = parameter(constraints.positive)
    loc = parameter(constraints.real)
    scale = parameter(constraints.positive)
    support = constraints.real
    has_rsample = True
    _skimp_expands = ("_chi2",)

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        numbers = not isinstance(df, Tensor)
        values = {"df": df, "loc": loc, "scale": scale}
        self._skimp_begin(validate_args, **values)
        self._chi2 = Chi2(df if numbers and self.df.dim() == 0 else self.df)

    @property
    def mean(self) -> Tensor:
        m = self.loc.clone()
        m[self.df <= 1] = math.nan
        return m

    mode = forwarded("loc")

    @property
    def variance(self) -> Tensor:
        m = self.df.clone()
        wide = self.df > 2
        m[wide] = self.scale[wide].pow(2) * self.df[wide] / (self.df[wide] - 2)
        m[(self.df <= 2) & (self.df > 1)] = math.inf
        m[self.df <= 1] = math.nan
        return m

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x = standard_normal(shape, self.df.dtype)
        y = x * ops.rsqrt(self._chi2.rsample(sample_shape) / self.df)
        return self.loc + self.scale * y

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        y = (value - self.loc) / self.scale
        z = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + ops.lgamma(0.5 * self.df)
            - ops.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * ops.log1p(y**2.0 / self.df) - z

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = ops.lgamma(half) + math.lgamma(0.5) - ops.lgamma(more)
        return (
            self.scale.log()
            + more * (ops.digamma(more) - ops.digamma(half))
            + 0.5 * self.df.log()
            + log_beta
        )
