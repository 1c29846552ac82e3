"""The standard's extension for linear algebra, and the products of its main namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import skimp as torch
from skimp import Tensor
from skimp._engine.tensor.dtypes import dtype as Dtype
from skimp.array_api.manipulation import Axes, axes_of
from skimp.array_api.reductions import sum
from skimp.array_api.types import alike

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive definite matrices."""
    return torch.linalg.cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three."""
    left, right = alike(x1, x2)
    more = left.dim() - right.dim()  # PyTorch broadcasts only what has as many dimensions
    left, right = left[(None,) * -more], right[(None,) * more]
    return torch.linalg.cross(left, right, dim=axis)


def det(x: Tensor, /) -> Tensor:
    """The determinant."""
    return torch.linalg.det(x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A view of a diagonal of the matrices in the last two dimensions."""
    return torch.linalg.diagonal(x, offset=offset)


def eigh(x: Tensor, /) -> Any:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return torch.linalg.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of Hermitian matrices."""
    return torch.linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """The inverse."""
    return torch.linalg.inv(x)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return torch.matmul(*alike(x1, x2))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of the matrices in the last two dimensions."""
    return torch.linalg.matrix_norm(x, ord, (-2, -1), keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """A square matrix times itself; its inverse for negative powers."""
    return torch.linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above a share of the largest."""
    return torch.linalg.matrix_rank(x, rtol=rtol)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """A view with the last two dimensions exchanged."""
    return x.mT


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Each element of one vector times each of the other."""
    return torch.outer(*alike(x1, x2))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse."""
    return torch.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """Factors Q and R: orthonormal columns, upper triangular."""
    return torch.linalg.qr(x, mode)


def slogdet(x: Tensor, /) -> Any:
    """The determinant's sign and the logarithm of its absolute value."""
    return torch.linalg.slogdet(x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """What gives `x2` if multiplied by `x1`; `x2` is a vector only where it has one dimension."""
    matrix, right = alike(x1, x2)
    if right.dim() > 1 and right.dim() == matrix.dim() - 1:
        right = right.unsqueeze(0)  # PyTorch would take some of these for stacks of vectors
    return torch.linalg.solve(matrix, right)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """Factors U, S and Vh: singular vectors and values."""
    return torch.linalg.svd(x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values."""
    return torch.linalg.svdvals(x)


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Products summed over several axes of both."""
    left, right = alike(x1, x2)
    return torch.tensordot(left, right, dims=axes)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Dtype | None = None) -> Tensor:
    """The sum along a diagonal of the matrices in the last two dimensions."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot product of the vectors along an axis, of the first's conjugate."""
    left, right = alike(x1, x2)
    if left.shape[axis] != right.shape[axis]:
        raise ValueError(
            f"vecdot: axis {axis} is of size {left.shape[axis]} and {right.shape[axis]}"
        )
    if left.is_floating_point() or left.is_complex():
        return torch.linalg.vecdot(left, right, dim=axis)
    return torch.sum(left * right, axis, dtype=left.dtype)


def vector_norm(
    x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """A norm of the elements along some axes, all without `axis`."""
    axes = axes_of(x, axis)
    if axes or x.dim() == 0:
        return torch.linalg.vector_norm(x, ord, axes or None, keepdims)
    return torch.linalg.vector_norm(x.unsqueeze(-1), ord, -1)
