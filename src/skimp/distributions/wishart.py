"""The Wishart distribution of positive definite matrices."""

from __future__ import annotations

import math
import warnings
from typing import Any

from skimp import linalg
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.chi2 import Chi2
from skimp.distributions.distribution import parameter
from skimp.distributions.exp_family import ExponentialFamily
from skimp.distributions.multivariate_normal import (
    factor_of,
    the_covariance,
    the_factor,
    the_one_given,
    the_precision,
)
from skimp.distributions.utils import size_of
from skimp.nn import ops


def _mvdigamma(x: Tensor, p: int) -> Tensor:
    steps = ops.arange(p, dtype=x.dtype)
    return ops.digamma(x.unsqueeze(-1) - steps.div(2)).sum(-1)


class Wishart(ExponentialFamily):
    """Sums of df outer products of normal vectors, of covariance V; df need not be whole.

    p(X) = det(X)^((df - p - 1) / 2) exp(-tr(V^-1 X) / 2) / (2^(df p / 2) det(V)^(df / 2)
    Gamma_p(df / 2)), for positive definite X of p rows. `df` > p - 1, a number or a tensor; one
    of `covariance_matrix`, V, `precision_matrix`, `scale_tril`, (..., p, p), which broadcasts with
    it; else ValueError. A warning tells of draws that may be singular.

    Source: Bartlett, On the theory of statistical regression, 1933 (the decomposition that draws).
    """

    covariance_matrix = parameter(constraints.positive_definite, the_covariance)
    precision_matrix = parameter(constraints.positive_definite, the_precision)
    scale_tril = parameter(constraints.lower_cholesky, the_factor)
    df = parameter(constraints.dependent(event_dim=0))
    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _skimp_expands = ("_unbroadcasted_scale_tril", "_dist_chi2")

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = the_one_given(covariance_matrix, precision_matrix, scale_tril)
        if matrix.dim() < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, "
                "with optional leading batch dimensions"
            )
        if not isinstance(df, Tensor):
            df = ops.tensor(df, dtype=matrix.dtype)
        batch_shape = ops.broadcast_shapes(matrix.shape[:-2], df.shape)
        event_shape = matrix.shape[-2:]
        if df.le(event_shape[-1] - 1).any():
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}."
            )
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.df = df.expand(batch_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        if self.df.lt(event_shape[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self._unbroadcasted_scale_tril = factor_of(name, matrix)
        steps = ops.arange(event_shape[-1], dtype=self.df.dtype)
        self._dist_chi2 = Chi2(df=self.df.unsqueeze(-1) - steps.expand((*batch_shape, -1)))

    @property
    def _batch_dims(self) -> list[int]:
        return [-(x + 1) for x in range(len(self._batch_shape))]

    @property
    def mean(self) -> Tensor:
        return self.df.view((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = factor.masked_fill(factor <= 0, float("nan"))
        return factor.view((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        outer = ops.einsum("...i,...j->...ij", diagonal, diagonal)
        return self.df.view((*self._batch_shape, 1, 1)) * (v.pow(2) + outer)

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Tensor:
        p = self._event_shape[-1]
        tiny = finfo(self.df.dtype).tiny
        diagonal = self._dist_chi2.rsample(sample_shape).sqrt().clamp(min=tiny)
        noise = diagonal.diag_embed(dim1=-2, dim2=-1)
        i, j = ops.tril_indices(p, p, offset=-1)
        noise[..., i, j] = ops.randn(
            (*sample_shape, *self._batch_shape, p * (p - 1) // 2), dtype=noise.dtype
        )
        chol = self._unbroadcasted_scale_tril @ noise
        return chol @ chol.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: Any = None) -> Tensor:
        """Draw; singular matrices are drawn again, at most `max_try_correction` times."""
        if max_try_correction is None:
            max_try_correction = 3 if self.df.lt(self._event_shape[-1]).any() else 10
        sample_shape = size_of(sample_shape)
        sample = self._bartlett_sampling(sample_shape)
        singular = self.support.check(sample).logical_not()
        if self._batch_shape:
            singular = singular.amax(self._batch_dims)
        if singular.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
            for _ in range(max_try_correction):
                rematerialize = self._bartlett_sampling(
                    sample[singular].shape[: singular.dim() and 1]
                )
                sample[singular] = rematerialize
                now = self.support.check(rematerialize).logical_not()
                if self._batch_shape:
                    now = now.amax(self._batch_dims)
                singular[singular.clone()] = now
                if not singular.any():
                    break
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        nu, p = self.df, self._event_shape[-1]
        half_log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        trace = (
            ops.cholesky_solve(value, self._unbroadcasted_scale_tril)
            .diagonal(dim1=-2, dim2=-1)
            .sum(-1)
        )
        return (
            -nu * (p * math.log(2) / 2 + half_log_det)
            - ops.mvlgamma(nu / 2, p=p)
            + (nu - p - 1) / 2 * linalg.slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        half_log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (
            (p + 1) * (p * math.log(2) / 2 + half_log_det)
            + ops.mvlgamma(nu / 2, p=p)
            - (nu - p - 1) / 2 * _mvdigamma(nu / 2, p=p)
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        p = self._event_shape[-1]
        return (y + (p + 1) / 2) * (
            -linalg.slogdet(-2 * x).logabsdet + math.log(2) * p
        ) + ops.mvlgamma(y + (p + 1) / 2, p=p)
