"""The multivariate normal distribution with a covariance of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any

from skimp import linalg
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.distribution import Distribution, forwarded, parameter
from skimp.distributions.multivariate_normal import batch_mahalanobis, batch_mv
from skimp.distributions.utils import lazy_property, standard_normal
from skimp.nn import ops


def capacitance_tril(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of I + W^T D^-1 W (Woodbury's identity)."""
    matrix = ops.matmul(factor.mT / diagonal.unsqueeze(-2), factor)
    return linalg.cholesky(matrix + ops.eye(factor.size(-1), dtype=factor.dtype))


def log_determinant(diagonal: Tensor, capacitance: Tensor) -> Tensor:
    """log det(W W^T + D), by the matrix determinant lemma."""
    return 2 * capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1) + diagonal.log().sum(-1)


def squared_distance(factor: Tensor, diagonal: Tensor, x: Tensor, capacitance: Tensor) -> Tensor:
    """x^T (W W^T + D)^-1 x, by Woodbury's identity."""
    projected = batch_mv(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.pow(2) / diagonal).sum(-1) - batch_mahalanobis(capacitance, projected)


class LowRankMultivariateNormal(Distribution):
    """A `MultivariateNormal` of covariance W W^T + diag(d), whose inverse needs only m x m systems.

    `loc`, (..., n), `cov_factor`, W, (..., n, m), and `cov_diag`, d > 0, (..., n), whose batches
    broadcast; ValueError for other shapes. The inverse is Woodbury's identity, the determinant
    the matrix determinant lemma.

    Source: Petersen and Pedersen, The matrix cookbook, 2012.
    """

    loc = parameter(constraints.real_vector)
    cov_factor = parameter(constraints.independent(constraints.real, 2))
    cov_diag = parameter(constraints.independent(constraints.positive, 1))
    support = constraints.real_vector
    has_rsample = True
    _skimp_keeps = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, "
                "with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {shape[0]} x m")
        if cov_diag.shape[-1:] != shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {shape}")
        wide, diagonal = loc.unsqueeze(-1), cov_diag.unsqueeze(-1)
        try:
            wide, self.cov_factor, diagonal = ops.broadcast_tensors(wide, cov_factor, diagonal)
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_diag = wide[..., 0], diagonal[..., 0]
        super().__init__(self.loc.shape[:-1], shape, validate_args=validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = capacitance_tril(cov_factor, cov_diag)

    mean = forwarded("loc")
    mode = forwarded("loc")

    @lazy_property
    def variance(self) -> Tensor:
        squares = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return squares.expand(self._batch_shape + self._event_shape)

    def _skimp_square(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        factor = self._unbroadcasted_cov_factor / root
        inner = ops.matmul(factor, factor.mT).contiguous()
        inner = inner + ops.eye(inner.size(-1), dtype=inner.dtype)
        return self._skimp_square(root * linalg.cholesky(inner))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_cov_factor
        return self._skimp_square(
            ops.matmul(factor, factor.mT) + ops.diag_embed(self._unbroadcasted_cov_diag)
        )

    @lazy_property
    def precision_matrix(self) -> Tensor:
        factor, diagonal = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        scaled = factor.mT / diagonal.unsqueeze(-2)
        solved = linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._skimp_square(
            ops.diag_embed(diagonal.reciprocal()) - ops.matmul(solved.mT, solved)
        )

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        eps_w = standard_normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc.dtype)
        eps_d = standard_normal(shape, self.loc.dtype)
        return (
            self.loc
            + batch_mv(self._unbroadcasted_cov_factor, eps_w)
            + self._unbroadcasted_cov_diag.sqrt() * eps_d
        )

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        squares = squared_distance(
            self._unbroadcasted_cov_factor,
            self._unbroadcasted_cov_diag,
            value - self.loc,
            self._capacitance_tril,
        )
        log_det = log_determinant(self._unbroadcasted_cov_diag, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det + squares)

    def entropy(self) -> Tensor:
        log_det = log_determinant(self._unbroadcasted_cov_diag, self._capacitance_tril)
        entropy = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + log_det)
        return entropy if len(self._batch_shape) == 0 else entropy.expand(self._batch_shape)
