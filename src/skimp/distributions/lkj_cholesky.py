"""The LKJ distribution of correlation matrices, as Cholesky factors."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.beta import Beta
from skimp.distributions.distribution import Distribution, parameter
from skimp.distributions.utils import broadcast_all
from skimp.nn import ops


class LKJCholesky(Distribution):
    """Cholesky factors L of correlation matrices, whose density is prop. to det(L L^T)^(c - 1).

    `dim`, the size of the matrices, at least 2 (else ValueError); `concentration`, c > 0: a number
    or a tensor of the batch's shape; 1 is uniform, more is nearer to the identity. Draws are
    (..., dim, dim), by the onion method.

    Source: Lewandowski, Kurowicka and Joe, Generating random correlation matrices based on vines
    and extended onion method, 2009.
    """

    concentration = parameter(constraints.positive)
    support = constraints.corr_cholesky
    _skimp_expands = ("_beta",)
    _skimp_keeps = ("dim",)

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        batch_shape = self.concentration.size()
        # chances of the squared length of each row without its diagonal
        marginal = self.concentration + 0.5 * (self.dim - 2)
        offset = ops.arange(self.dim - 1, dtype=self.concentration.dtype)
        offset = ops.cat([offset.new_zeros((1,)), offset])
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(batch_shape, Size((dim, dim)), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            u = ops.randn(self._extended_shape(sample_shape), dtype=self.concentration.dtype)
            directions = u.tril(-1)
            directions = directions / directions.norm(dim=-1, keepdim=True)
            directions[..., 0, :].fill_(0.0)  # 0 / 0
            w = ops.sqrt(y) * directions
            tiny = finfo(w.dtype).tiny
            diagonal = ops.clamp(1 - ops.sum(w**2, dim=-1), min=tiny).sqrt()
            return w + ops.diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        self._skimp_check(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = ops.arange(2, self.dim + 1, dtype=self.concentration.dtype)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        plain = ops.sum(order * diagonal.log(), dim=-1)
        d = self.dim - 1
        alpha = self.concentration + 0.5 * d
        constant = ops.lgamma(alpha) * d - ops.mvlgamma(alpha - 0.5, d)
        return plain - (0.5 * d * math.log(math.pi) - constant)
