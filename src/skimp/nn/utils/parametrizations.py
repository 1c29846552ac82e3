"""The parametrizations that come with torch: weight_norm, spectral_norm, orthogonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp import linalg
from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops
from skimp.nn.modules.module import Module
from skimp.nn.utils import norms, parametrize
from skimp.nn.utils.spectral_norm import default_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _tensor_of(module: Any, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# -- weight norm ----------------------------------------------------------------------------------


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return norms.weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norms.norm_except_dim(weight, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Learn a weight's lengths and directions apart (Salimans and Kingma 2016).

    Shape: original0 has the weight's length along `dim` and 1 elsewhere, original1 the weight's
    shape.
    Source: Salimans and Kingma 2016, Weight normalization.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *_: Any) -> None:
        """Checkpoints of the older form have other names."""
        old = [f"{prefix}{name}_{part}" for part in "gv"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


# -- spectral norm --------------------------------------------------------------------------------


class _SpectralNorm(Module):
    _u: Any
    _v: Any

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got "
                f"{dim})"
            )
        norms.check_iterations(n_power_iterations)
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = norms.as_matrix(weight, self.dim)
                h, w = matrix.size()
                u, v = matrix.new_empty(h).normal_(0, 1), matrix.new_empty(w).normal_(0, 1)
                self.register_buffer("_u", norms.unit(u, eps))
                self.register_buffer("_v", norms.unit(v, eps))
            self._power_method(matrix, 15)

    @no_grad()  # type: ignore[untyped-decorator]
    def _power_method(self, matrix: Tensor, n: int) -> None:
        for _ in range(n):
            self._u.copy_(norms.unit(ops.mv(matrix, self._v), self.eps))
            self._v.copy_(norms.unit(ops.mv(matrix.mH, self._u), self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return norms.unit(weight, self.eps)
        matrix = norms.as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # clones: the next access changes u and v, which this one's backward reads
        u, v = self._u.clone(), self._v.clone()
        return weight / ops.vdot(u, ops.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Keep the largest singular value of a weight at 1 (Miyato et al. 2018).

    Shape: the weight as a matrix with `dim` first.
    Raises: ValueError for a power iteration count below 1 or a name that is no parameter,
    IndexError for a dim that is not there.
    Source: Miyato et al. 2018, Spectral normalization for generative adversarial networks.
    """
    weight = _tensor_of(module, name)
    made = _SpectralNorm(
        weight, n_power_iterations, default_dim(module) if dim is None else dim, eps
    )
    parametrize.register_parametrization(module, name, made)
    return module


# -- orthogonal -----------------------------------------------------------------------------------

_MAPS = ("matrix_exp", "cayley", "householder")


def _positive_q(matrix: Tensor) -> Tensor:
    """Q of a QR decomposition whose R has a positive diagonal."""
    a, tau = ops.geqrf(matrix)
    signs = a.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
    q: Tensor = linalg.householder_product(a, tau) * signs
    return q


def _is_orthogonal(q: Tensor) -> bool:
    k = q.size(-1)
    eps = 10.0 * k * float(np.finfo(q.dtype.to_real().np).eps)
    return bool(((q.mH @ q - ops.eye(k, dtype=q.dtype)).abs() <= eps).all())


class _Orthogonal(Module):
    base: Any

    def __init__(
        self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:  # noqa: N803  (the papers' name)
        transposed = X.size(-2) < X.size(-1)
        tall = X.mT if transposed else X
        q = self._reflected(tall) if self.orthogonal_map == "householder" else self._rotated(tall)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if transposed else q

    def _rotated(self, x: Tensor) -> Tensor:
        """From a skew-symmetric matrix made of x's lower triangle."""
        n, k = x.shape[-2:]
        x = x.tril()
        if n != k:
            x = ops.cat([x, x.new_zeros(n, n - k).expand(*x.shape[:-2], -1, -1)], dim=-1)
        a = x - x.mH
        if self.orthogonal_map == "matrix_exp":
            q = linalg.matrix_exp(a)
        else:
            one = ops.eye(n, dtype=a.dtype)
            q = linalg.solve(one - 0.5 * a, one + 0.5 * a)
        return q[..., :k] if n != k else q

    def _reflected(self, x: Tensor) -> Tensor:
        a = x.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (a * a).sum(dim=-2))
        return linalg.householder_product(a, tau) * x.detach().diagonal(
            dim1=-2, dim2=-1
        ).int().unsqueeze(-2)

    @no_grad()  # type: ignore[untyped-decorator]
    def right_inverse(self, Q: Tensor) -> Tensor:  # noqa: N803
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {Q.shape}."
            )
        transposed = Q.size(-2) < Q.size(-1)
        q = Q.mT if transposed else Q
        n, k = q.shape[-2:]
        if not hasattr(self, "base"):
            return self._as_reflectors(q, transposed)
        if n != k:
            q = _positive_q(ops.cat([q, ops.randn(*q.shape[:-2], n, n - k, dtype=q.dtype)], dim=-1))
        else:
            q = q.clone() if _is_orthogonal(q) else _positive_q(q)
        self.base = q
        minus_one = ops.zeros_like(Q)
        minus_one.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return minus_one

    def _as_reflectors(self, q: Tensor, transposed: bool) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        a: Tensor
        a, tau = ops.geqrf(q)
        diagonal = a.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_(ops.where(tau == 0.0, -diagonal.sign(), diagonal.sign()))
        return a.mT if transposed else a


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Keep a weight orthogonal (Lezcano-Casado 2019).

    Shape: (..., n, m), rows or columns orthogonal, whichever are fewer.
    Raises: ValueError for fewer than two dimensions, and for a map of another name.
    Source: Lezcano-Casado 2019, Trivializations for gradient-based optimization on manifolds.
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module
