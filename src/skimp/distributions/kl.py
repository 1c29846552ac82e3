"""Kullback-Leibler divergences: closed forms, found by the classes of the two distributions.

Between families, KL(p || q) = -H(p) - E_p[log q]; `expectations` has the moments of p that the
logarithms of the densities need.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

from skimp import autograd, linalg
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions.bernoulli import Bernoulli
from skimp.distributions.beta import Beta
from skimp.distributions.binomial import Binomial
from skimp.distributions.categorical import Categorical
from skimp.distributions.cauchy import Cauchy
from skimp.distributions.continuous_bernoulli import ContinuousBernoulli
from skimp.distributions.dirichlet import Dirichlet
from skimp.distributions.distribution import Distribution
from skimp.distributions.exp_family import ExponentialFamily
from skimp.distributions.expectations import mean_distance, mean_exp, mean_log, mean_log1m
from skimp.distributions.exponential import Exponential
from skimp.distributions.gamma import Gamma
from skimp.distributions.geometric import Geometric
from skimp.distributions.gumbel import Gumbel
from skimp.distributions.half_normal import HalfNormal
from skimp.distributions.independent import Independent
from skimp.distributions.laplace import Laplace
from skimp.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    log_determinant,
    squared_distance,
)
from skimp.distributions.multivariate_normal import MultivariateNormal, batch_mahalanobis
from skimp.distributions.normal import Normal
from skimp.distributions.one_hot_categorical import OneHotCategorical
from skimp.distributions.pareto import Pareto
from skimp.distributions.poisson import Poisson
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.uniform import Uniform
from skimp.distributions.utils import euler_constant, infinite_like, sum_rightmost
from skimp.nn import functional as F, ops

__all__ = ["kl_divergence", "register_kl"]

Divergence = Callable[[Any, Any], Tensor]
_KL_REGISTRY: dict[tuple[type, type], Divergence] = {}
_KL_MEMOIZE: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """A decorator that declares the divergence of two classes and of their subclasses.

    TypeError for what is no class. Of several declarations the most special one is taken, with a
    RuntimeWarning where there is none.

    Raises: TypeError for what is no class.
    """
    given: Any
    for given, name in ((type_p, "type_p"), (type_q, "type_q")):
        if not isinstance(given, type):  # libraries declare divergences of classes of their own
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def decorator(fun: Divergence) -> Divergence:
        _KL_REGISTRY[type_p, type_q] = fun
        _KL_MEMOIZE.clear()
        return fun

    return decorator


def _nearer(a: tuple[type, type], b: tuple[type, type]) -> bool:
    """Whether `a` is more special than `b`, comparing the first classes first."""
    for one, other in zip(a, b, strict=True):
        if not issubclass(one, other):
            return False
        if one is not other:
            break
    return True


def _dispatch(type_p: type, type_q: type) -> Divergence | None:
    matches = [
        pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])
    ]
    if not matches:
        return None

    def first(order: slice) -> tuple[type, type]:
        best = matches[0]
        for pair in matches[1:]:
            if _nearer(pair[order], best[order]):  # type: ignore[arg-type]
                best = pair
        return best

    left, right = first(slice(None)), first(slice(None, None, -1))
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q) = E_p[log p(x) - log q(x)] in nats, of the batches' common shape.

    Infinite where p has values that q can't have. NotImplementedError where nothing is registered
    for the classes, or for what they hold; ValueError for events of different shapes.

        >>> d = torch.distributions
        >>> d.kl_divergence(d.Normal(0.0, 1.0), d.Normal(1.0, 1.0))
        tensor(0.5000)

    Shape: the common shape of both batches.
    Dtypes: floating point, the parameters'.
    Raises: NotImplementedError where nothing is registered for the classes, or for what they hold;
    ValueError for events of different shapes.
    Memory: a new tensor.
    """
    pair = type(p), type(q)
    fun = _KL_MEMOIZE.get(pair)
    if fun is None:
        fun = _dispatch(*pair)
        if fun is None:
            raise NotImplementedError(
                f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                f"{type(q).__name__}"
            )
        _KL_MEMOIZE[pair] = fun
    return fun(p, q)


# -- within a family ------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    t1 = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    t1[q.probs == 0] = math.inf
    t1[p.probs == 0] = 0
    t2 = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    t2[q.probs == 1] = math.inf
    t2[p.probs == 1] = 0
    return t1 + t2


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    more = p.total_count > q.total_count
    kl[more] = math.inf
    return kl


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    t = p.probs * (p.logits - q.logits)
    t[(q.probs == 0).expand_as(t)] = math.inf
    t[(p.probs == 0).expand_as(t)] = 0
    return t.sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    t1 = p.mean * (p.logits - q.logits)
    t2 = p._cont_bern_log_norm() + ops.log1p(-p.probs)
    return t1 + t2 - q._cont_bern_log_norm() - ops.log1p(-q.probs)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    t1 = c.lgamma() + d.lgamma() + (a + b).lgamma()
    t2 = a.lgamma() + b.lgamma() + (c + d).lgamma()
    rest = (c + d - a - b) * (a + b).digamma()
    return t1 - t2 + (a - c) * a.digamma() + (b - d) * b.digamma() + rest


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    t1 = a.sum(-1).lgamma() - b.sum(-1).lgamma()
    t2 = (a.lgamma() - b.lgamma()).sum(-1)
    t3 = (a - b) * (a.digamma() - a.sum(-1).digamma().unsqueeze(-1))
    return t1 - t2 + t3.sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _family(p: Any, q: Any) -> Tensor:
    """Bregman's divergence of the log-normaliser (Nielsen and Nock, 2010)."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences"
        )
    theta_p = [x.detach().requires_grad_() for x in p._natural_params]
    theta_q = q._natural_params
    at_p = p._log_normalizer(*theta_p)
    slopes = autograd.grad(at_p.sum(), theta_p, create_graph=True)
    result = q._log_normalizer(*theta_q) - at_p
    for a, b, slope in zip(theta_p, theta_q, slopes, strict=True):
        result = result - sum_rightmost((b - a) * slope, a.dim() - len(p.batch_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    t1 = b * (p.rate / q.rate).log()
    t2 = b.lgamma() - a.lgamma()
    return t1 + t2 + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, moved = p.scale / q.scale, q.loc / q.scale
    away = p.loc / q.scale
    t1 = -ratio.log() - moved + away
    t2 = ratio * euler_constant
    t3 = ops.exp(moved + (1 + ratio).lgamma() - away)
    return t1 + t2 + t3 - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - ops.log1p(-q.probs) / p.probs - q.logits


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    away = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + away - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * ops.exp(-away / p.scale) - 1


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio, alphas = p.scale / q.scale, q.alpha / p.alpha
    result = q.alpha * ratio.log() - alphas.log() + alphas - 1
    result[p.scale < q.scale] = math.inf
    return result


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    result[(q.low > p.low) | (q.high < p.high)] = math.inf
    return result


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    """Chyzak and Nielsen (2019)."""
    t1 = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return t1 - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), more)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    inner = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(inner, p.reinterpreted_batch_ndims)


# -- multivariate normal --------------------------------------------------------------------------


def _title(p: Any, q: Any) -> str:
    low = sum(isinstance(d, LowRankMultivariateNormal) for d in (p, q))
    return f"{('', '(Low Rank) ', 'Low Rank ')[low]}Multivariate Normals"


def _same_events(p: Any, q: Any) -> int:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {_title(p, q)} with different event shapes "
            "cannot be computed"
        )
    return int(p.event_shape[0])


def _trace_of_squares(matrix: Tensor) -> Tensor:
    """tr(M M^T) of each matrix."""
    return matrix.pow(2).sum((-2, -1))


def _half_log_det(d: Any) -> Tensor:
    if isinstance(d, LowRankMultivariateNormal):
        both = log_determinant(d._unbroadcasted_cov_diag, d._capacitance_tril)
        return 0.5 * both
    return d._skimp_half_log_det()


def _factors(p: Any) -> list[Tensor]:
    """Matrices whose squares sum to p's covariance."""
    if isinstance(p, LowRankMultivariateNormal):
        return [p._unbroadcasted_cov_factor, ops.diag_embed(p._unbroadcasted_cov_diag.sqrt())]
    return [p._unbroadcasted_scale_tril]


def _whitened(q: Any, x: Tensor) -> Tensor:
    """Squared lengths of the columns of `x` by q's covariance, summed: tr(x^T S^-1 x)."""
    if isinstance(q, LowRankMultivariateNormal):
        w, d = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag.unsqueeze(-1)
        inner = ops.matmul(w.mT / d.mT, x)
        small = linalg.solve_triangular(q._capacitance_tril, inner, upper=False)
        return _trace_of_squares(x / d.sqrt()) - _trace_of_squares(small)
    return _trace_of_squares(linalg.solve_triangular(q._unbroadcasted_scale_tril, x, upper=False))


def _multivariate(p: Any, q: Any) -> Tensor:
    n = _same_events(p, q)
    traces = sum(_whitened(q, factor) for factor in _factors(p))
    if isinstance(q, LowRankMultivariateNormal):
        away = squared_distance(
            q._unbroadcasted_cov_factor,
            q._unbroadcasted_cov_diag,
            q.loc - p.loc,
            q._capacitance_tril,
        )
    else:
        away = batch_mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc)
    return _half_log_det(q) - _half_log_det(p) + 0.5 * (traces + away - n)


_NORMALS = (MultivariateNormal, LowRankMultivariateNormal)
for _pair in itertools.product(_NORMALS, _NORMALS):
    register_kl(*_pair)(_multivariate)


# -- between families -----------------------------------------------------------------------------


def _infinite(p: Any, q: Any) -> Tensor:
    """p has values that q can't have."""
    some = (
        next(v for v in p.__dict__.values() if isinstance(v, Tensor))
        if not isinstance(p, Beta)
        else p.concentration1
    )
    return infinite_like(some)


def _to_normal(p: Any, q: Any) -> Tensor:
    square = (p.variance + (p.mean - q.loc).pow(2)) / (2 * q.scale.pow(2))
    return -p.entropy() + 0.5 * math.log(2 * math.pi) + q.scale.log() + square


def _to_exponential(p: Any, q: Any) -> Tensor:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


def _to_gamma(p: Any, q: Any) -> Tensor:
    c = q.concentration
    kernel = c * q.rate.log() - c.lgamma() + (c - 1) * mean_log(p) - q.rate * p.mean
    return -p.entropy() - kernel


def _to_gumbel(p: Any, q: Any) -> Tensor:
    moved = q.loc / q.scale
    inner = moved - p.mean / q.scale - ops.exp(moved) * mean_exp(p, -q.scale.reciprocal())
    return -p.entropy() + q.scale.log() - inner


def _to_laplace(p: Any, q: Any) -> Tensor:
    return -p.entropy() + (2 * q.scale).log() + mean_distance(p, q.loc) / q.scale


def _to_pareto(p: Any, q: Any) -> Tensor:
    return -p.entropy() - q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * mean_log(p)


def _to_beta(p: Any, q: Any) -> Tensor:
    a, b = q.concentration1, q.concentration0
    norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    return -p.entropy() - (a - 1) * mean_log(p) - (b - 1) * mean_log1m(p) + norm


def _to_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return -p.entropy() - p.mean * q.logits - ops.log1p(-q.probs) - q._cont_bern_log_norm()


def _inside(value: Any, outside: Tensor) -> Tensor:
    return ops.where(outside, math.inf, value)


def _to_uniform(p: Any, q: Any) -> Tensor:
    return -p.entropy() + (q.high - q.low).log()


_CLOSED: dict[type, dict[type, Divergence]] = {
    Beta: {
        ContinuousBernoulli: _to_continuous_bernoulli,
        Exponential: _to_exponential,
        Gamma: _to_gamma,
        Normal: _to_normal,
        Uniform: lambda p, q: _inside(_to_uniform(p, q), (q.low > 0) | (q.high < 1)),
        Pareto: _infinite,
    },
    ContinuousBernoulli: {
        Exponential: _to_exponential,
        Normal: _to_normal,
        Uniform: lambda p, q: _inside(_to_uniform(p, q), (q.low > 0) | (q.high < 1)),
        Pareto: _infinite,
    },
    Exponential: {Gamma: _to_gamma, Gumbel: _to_gumbel, Normal: _to_normal},
    Gamma: {Exponential: _to_exponential, Gumbel: _to_gumbel, Normal: _to_normal},
    Gumbel: {Normal: _to_normal},
    Laplace: {Normal: _to_normal},
    Normal: {Gumbel: _to_gumbel, Laplace: _to_laplace},
    Pareto: {
        Exponential: lambda p, q: _inside(_to_exponential(p, q), p.alpha <= 1),
        Gamma: lambda p, q: _inside(_to_gamma(p, q), p.alpha <= 1),
        Normal: lambda p, q: _inside(_to_normal(p, q), p.alpha <= 2),
    },
    Uniform: {
        Beta: lambda p, q: _inside(_to_beta(p, q), (p.high > 1) | (p.low < 0)),
        ContinuousBernoulli: lambda p, q: _inside(
            _to_continuous_bernoulli(p, q), (p.high > 1) | (p.low < 0)
        ),
        Exponential: lambda p, q: _inside(_to_exponential(p, q), p.low < 0),
        Gamma: lambda p, q: _inside(_to_gamma(p, q), p.low < 0),
        Gumbel: _to_gumbel,
        Normal: _to_normal,
        Pareto: lambda p, q: _inside(_to_pareto(p, q), p.low < q.scale),
    },
}
# p lives where q has no density
_OUTSIDE: dict[type, tuple[type, ...]] = {
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}
for _p, _row in _CLOSED.items():
    for _q, _f in _row.items():
        register_kl(_p, _q)(_f)
for _p, _others in _OUTSIDE.items():
    for _q in _others:
        register_kl(_p, _q)(_infinite)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)
