"""Expectations of simple functions of a number under the distributions that have them closed."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributions.beta import Beta
from skimp.distributions.exponential import Exponential
from skimp.distributions.gamma import Gamma
from skimp.distributions.pareto import Pareto
from skimp.distributions.uniform import Uniform
from skimp.distributions.utils import euler_constant
from skimp.nn import ops


def _integral_of_log(p: Uniform, low: Tensor, high: Tensor) -> Tensor:
    return (ops.xlogy(high, high) - ops.xlogy(low, low)) / (p.high - p.low) - 1


def mean_log(p: Any) -> Tensor:
    """E log x."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    if isinstance(p, Uniform):
        return _integral_of_log(p, p.low, p.high)
    raise NotImplementedError(f"no closed E log x for {type(p).__name__}")


def mean_log1m(p: Uniform) -> Tensor:
    """E log (1 - x)."""
    return _integral_of_log(p, 1 - p.high, 1 - p.low)


def mean_exp(p: Any, t: Tensor) -> Tensor:
    """E exp(t x), for t < 0."""
    if isinstance(p, Gamma):
        return (1 - t / p.rate) ** -p.concentration
    if isinstance(p, Exponential):
        return p.rate / (p.rate - t)
    if isinstance(p, Uniform):
        return (ops.exp(t * p.high) - ops.exp(t * p.low)) / (t * (p.high - p.low))
    return ops.exp(t * p.loc + (t * p.scale).pow(2) / 2)  # normal


def mean_distance(p: Any, center: Tensor) -> Tensor:
    """E |x - center| of a normal number (the folded normal's mean)."""
    away = (p.loc - center) / p.scale
    folded = math.sqrt(2 / math.pi) * ops.exp(-away.pow(2) / 2)
    return p.scale * (folded + away * ops.erf(away / math.sqrt(2)))
