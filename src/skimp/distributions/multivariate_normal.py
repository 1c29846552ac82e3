"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

from skimp import linalg
from skimp._compat.modules import lookup as _lookup
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.distributions.utils import standard_normal
from skimp.nn import ops

__getattr__ = _lookup(__name__)


def batch_mv(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Products of matrices and vectors, with broadcast batches."""
    return ops.matmul(matrices, vectors.unsqueeze(-1)).squeeze(-1)


def batch_mahalanobis(lower: Tensor, x: Tensor) -> Tensor:
    """x^T (L L^T)^-1 x, for vectors x and lower triangles L, with broadcast batches."""
    batch = ops.broadcast_shapes(lower.shape[:-2], x.shape[:-1])
    if lower.dim() == 2:  # one factor for all vectors: they are the columns of one system
        columns = x.reshape(-1, x.size(-1)).mT
        solved = linalg.solve_triangular(lower, columns, upper=False)
        return solved.pow(2).sum(0).reshape(batch)
    solved = linalg.solve_triangular(lower, x.unsqueeze(-1), upper=False)
    return solved.squeeze(-1).pow(2).sum(-1)


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of a matrix."""
    flipped = linalg.cholesky(ops.flip(precision, (-2, -1)))
    upper = ops.transpose(ops.flip(flipped, (-2, -1)), -2, -1)
    eye = ops.eye(precision.shape[-1], dtype=precision.dtype)
    return linalg.solve_triangular(upper, eye, upper=False)


def for_batch(d: Any, matrix: Tensor) -> Tensor:
    """A matrix for each of the batch, as a view."""
    return matrix.expand(d._batch_shape + matrix.shape[-2:])


def the_factor(d: Any) -> Tensor:
    """L of a distribution whose covariance is L L^T."""
    return for_batch(d, d._unbroadcasted_scale_tril)


def the_covariance(d: Any) -> Tensor:
    """L L^T."""
    lower = d._unbroadcasted_scale_tril
    return for_batch(d, ops.matmul(lower, lower.mT))


def the_precision(d: Any) -> Tensor:
    """(L L^T)^-1."""
    return for_batch(d, ops.cholesky_inverse(d._unbroadcasted_scale_tril))


MATRICES = ("covariance_matrix", "precision_matrix", "scale_tril")


def the_one_given(*matrices: Tensor | None) -> tuple[str, Tensor]:
    """The name and value of the one of `MATRICES` that is not None."""
    chosen = [(name, m) for name, m in zip(MATRICES, matrices, strict=True) if m is not None]
    if len(chosen) != 1:
        raise ValueError(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
        )
    return chosen[0]


def factor_of(name: str, matrix: Tensor) -> Tensor:
    """L, from the matrix that was given under `name`."""
    if name == "scale_tril":
        return matrix
    return (linalg.cholesky if name == "covariance_matrix" else precision_to_scale_tril)(matrix)


class MultivariateNormal(Distribution):
    """p(x) = exp(-(x - loc)^T S^-1 (x - loc) / 2) / sqrt((2 pi)^n det S), for vectors x of n.

    `loc`, (..., n); and one (else ValueError) of `covariance_matrix`, S, its inverse
    `precision_matrix`, or `scale_tril`, its Cholesky factor, (..., n, n), which broadcasts with
    `loc`. All work is done with the factor, so it is the cheapest to give; the other
    matrices are computed when they are asked for. Error of `linalg.cholesky` for an S that is not
    positive definite, where arguments are not validated.
    """

    loc = parameter(constraints.real_vector)
    covariance_matrix = parameter(constraints.positive_definite, the_covariance)
    precision_matrix = parameter(constraints.positive_definite, the_precision)
    scale_tril = parameter(constraints.lower_cholesky, the_factor)
    support = constraints.real_vector
    has_rsample = True
    _skimp_keeps = ("_unbroadcasted_scale_tril",)

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = the_one_given(covariance_matrix, precision_matrix, scale_tril)
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch_shape = ops.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = factor_of(name, matrix)

    mean = forwarded("loc")
    mode = forwarded("loc")

    @property
    def variance(self) -> Tensor:
        squares = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return squares.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = standard_normal(self._extended_shape(sample_shape), self.loc.dtype)
        return self.loc + batch_mv(self._unbroadcasted_scale_tril, eps)

    def _skimp_half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        squares = batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + squares) - self._skimp_half_log_det()

    def entropy(self) -> Tensor:
        half = self._skimp_half_log_det()
        entropy = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half
        return entropy if len(self._batch_shape) == 0 else entropy.expand(self._batch_shape)
