"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.chi2 import Chi2
from skimp.distributions.distribution import Univariate
from skimp.distributions.utils import standard_normal
from skimp.nn import whole


class StudentT(Univariate):
    """Student's t with `df` degrees of freedom, scaled and moved."""

    parameters = ("df", "loc", "scale")
    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        numbers = not isinstance(df, Tensor)
        values = {"df": df, "loc": loc, "scale": scale}
        self._begin(validate_args, **values)
        self._chi2 = Chi2(df if numbers and self.df.dim() == 0 else self.df)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        m = self.loc.clone()
        m[self.df <= 1] = math.nan
        return m

    @property
    def mode(self) -> Tensor:
        return self.loc

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
        y = x * whole.rsqrt(self._chi2.rsample(sample_shape) / self.df)
        return self.loc + self.scale * y

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        y = (value - self.loc) / self.scale
        z = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + whole.lgamma(0.5 * self.df)
            - whole.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * whole.log1p(y**2.0 / self.df) - z

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = whole.lgamma(half) + math.lgamma(0.5) - whole.lgamma(more)
        return (
            self.scale.log()
            + more * (whole.digamma(more) - whole.digamma(half))
            + 0.5 * self.df.log()
            + log_beta
        )
