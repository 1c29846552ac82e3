"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from skimp.distributions import constraints
from skimp.distributions.distribution import forwarded
from skimp.distributions.gamma import Gamma


class Chi2(Gamma):
    """The sum of `df` squared standard normal numbers: Gamma(df / 2, 1 / 2).

    p(x) = x^(df / 2 - 1) exp(-x / 2) / (2^(df / 2) Gamma(df / 2)), for x > 0. `df` > 0, which need
    not be whole: a number or a tensor of the batch's shape.
    """

    df = forwarded(lambda d: d.concentration * 2, constraints.positive)
    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)
