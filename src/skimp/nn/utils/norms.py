"""What weight and spectral normalisation share."""

from __future__ import annotations

from typing import Any

from skimp import linalg
from skimp._engine.tensor.checks import require_positive
from skimp._engine.tensor.tensor import Tensor


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """The 2-norm over all dimensions but one, which keeps its size; over all for dim -1."""
    if dim == -1:
        return linalg.vector_norm(v)
    rest = [d for d in range(v.dim()) if d != dim]
    return linalg.vector_norm(v, 2, rest, True) if rest else v.abs()


def weight_norm(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """g * v / |v|."""
    return v * (g / norm_except_dim(v, dim))


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix whose rows are the positions in `dim`."""
    if dim != 0:
        weight = weight.permute(dim, *[d for d in range(weight.dim()) if d != dim])
    return weight.reshape(weight.size(0), -1)


def unit(v: Tensor, eps: float) -> Tensor:
    """A vector of length 1."""
    return v / linalg.vector_norm(v).clamp_min(eps)


def check_iterations(n: int) -> None:
    """A power iteration has at least one step."""
    says = "Expected n_power_iterations to be positive, but got n_power_iterations={got}"
    require_positive(n, says)


def hook_of(hooks: dict[int, Any], kind: type, name: str) -> int | None:
    """The key of a hook of this kind for a parameter of this name."""
    for key, hook in hooks.items():
        if isinstance(hook, kind) and hook.name == name:  # type: ignore[attr-defined]
            return key
    return None
