"""What the distributions share: broadcasting, probabilities and logits, lazy attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from numbers import Number
from typing import Any

from skimp._engine.autograd.modes import enable_grad, state
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.promotion import get_default_dtype
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F, ops

euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """The values as tensors of one shape, views where they had to be expanded.

    Numbers take the first tensor's dtype, or the default dtype. ValueError for what is neither,
    RuntimeError for shapes that don't broadcast.

    Shape: the shape that all broadcast to.
    Dtypes: any.
    Raises: ValueError for what is neither tensor nor number, RuntimeError for shapes that don't
    broadcast.
    Memory: views.
    """
    if not all(isinstance(value, Tensor | Number) for value in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects "
            f"implementing __torch_function__; got {[type(value).__name__ for value in values]}"
        )
    first = next((value for value in values if isinstance(value, Tensor)), None)
    dtype = get_default_dtype() if first is None else first.dtype
    tensors = [v if isinstance(v, Tensor) else ops.tensor(v, dtype=dtype) for v in values]
    return tuple(ops.broadcast_tensors(*tensors))


def standard_normal(shape: Any, dtype: Any, device: Any = None) -> Tensor:
    """Normal numbers drawn as torch.normal draws them for tensors of zeros and ones."""
    return ops.randn(shape, dtype=dtype, device=device)


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last `dim` dimensions."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Chances of the same shape from log-odds (binary), or from unnormalised log-probabilities of
    the last dimension.

    Shape: any; the result's is the input's.
    Dtypes: floating point.
    Raises: NotImplementedError for integers that are to be normalised.
    Memory: a new tensor.
    """
    return ops.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by the dtype's epsilon.

    Shape: any; the result's is the input's.
    Dtypes: floating point.
    Raises: TypeError for integers, which have no epsilon.
    Memory: a new tensor.
    """
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds (binary) or log-probabilities of the same shape; chances of 0 and 1 are moved by the
    dtype's epsilon, so they are finite.

    Shape: any; the result's is the input's.
    Dtypes: floating point.
    Raises: TypeError for integers, which have no epsilon.
    Memory: a new tensor.
    """
    clamped = clamp_probs(probs)
    if is_binary:
        return ops.log(clamped) - ops.log1p(-clamped)
    return ops.log(clamped)


def infinite_like(tensor: Tensor) -> Tensor:
    return ops.full_like(tensor, float("inf"))


class lazy_property:  # noqa: N801 (PyTorch's name)
    """An attribute that is computed when it is first asked for, with gradients, and kept."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped, self.name = wrapped, wrapped.__name__
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if state.grad:
            value = self.wrapped(instance)
        else:
            with enable_grad():
                value = self.wrapped(instance)
        setattr(instance, self.name, value)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of square matrices (..., n, n), row by row, as vectors; a copy.

    `diag` is the last diagonal that counts; ValueError where the matrices have none.

    Shape: (..., n, n) to (..., numbers in a triangle).
    Dtypes: any.
    Raises: ValueError for a diagonal that the matrices have not.
    Memory: a new tensor.
    """
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = ops.tril_indices(n, n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Square matrices (..., n, n) whose lower triangles are the vectors, and zero above; a copy.

    ValueError for vectors whose length is none of a triangle.

    Shape: (..., numbers in a triangle) to (..., n, n).
    Dtypes: any.
    Raises: ValueError for a length that is none of a triangle.
    Memory: a new tensor.
    """
    k = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * k + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if not n.is_integer() or n <= 0:
        raise ValueError(
            f"The size of last dimension is {k} which cannot be expressed as the lower triangular "
            "part of a square D x D matrix."
        )
    n = int(n)
    mat = vec.new_zeros([*vec.shape[:-1], n, n])
    rows, columns = ops.tril_indices(n, n, diag)
    mat[..., rows, columns] = vec
    return mat


def one_of(probs: Any, logits: Any) -> None:
    """Exactly one of the two parametrisations was given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


def size_of(shape: Any) -> Size:
    return shape if isinstance(shape, Size) else Size(shape)
