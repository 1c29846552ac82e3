"""Fast paths of `solve.py` and `decompositions.py` for small matrices, with the general way's bits.
They answer neither what is singular nor what holds NaN: that way tells them apart.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.transforms import active
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import lapack
from skimp._ops import return_types
from skimp._ops.linalg.checks import columns, rows


def _square(t: Tensor) -> Array | None:
    """The elements of small square matrices."""
    a: Array | None = t._np
    if a is None or t._dtype not in dtypes.FLOATING_AND_COMPLEX or a.ndim < 2 or not a.size:
        return None
    return a if a.shape[-1] == a.shape[-2] else None


def _beside(A: Tensor, B: Any) -> tuple[Array, Array] | None:
    """The elements of square matrices, and of what is as many matrices, or vectors, of their
    type.
    """
    a = _square(A)
    if a is None or type(B) not in ORDINARY or B._dtype is not A._dtype or B._np is None:
        return None
    b: Array = B._np
    alike = b.ndim == a.ndim and b.shape[:-2] == a.shape[:-2]
    return (a, b) if b.size and (alike or b.shape == a.shape[:-1]) else None


def inv(A: Tensor) -> Tensor | None:
    """`linalg.inv`."""
    a = _square(A)
    if a is None:
        return None
    found = lapack.made("inv", a)
    return None if lapack.failed(found, a) else columns(found, A._dtype)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor | None:
    """`linalg.solve`, from the left."""
    pair = _beside(A, B) if left is True else None
    found = None if pair is None else _solved(*pair)
    return None if found is None else (rows if found.ndim == 1 else columns)(found, A._dtype)


def _solved(a: Array, b: Array) -> Array | None:
    vector = b.ndim < a.ndim
    if b.shape[-1 if vector else -2] != a.shape[-1]:
        return None
    found: Array = lapack.made("solve", a, b[..., None] if vector else b)
    if lapack.failed(found, a):
        return None
    return found[..., 0] if vector else found


def solve_adjoint(A: Tensor, B: Tensor) -> Tensor | None:
    """The X of A^H X = B, in a derivative that is not recorded."""
    pair = None if modes.state.grad or active else _beside(A, B)
    found = None if pair is None else _solved(lapack.adjoint(pair[0]), pair[1])
    if pair is None or found is None:
        return None
    return (columns if found.ndim == pair[0].ndim else rows)(found, A._dtype)


def solve_triangular(
    input: Tensor, B: Tensor, *, upper: Any, left: Any = True, unitriangular: Any = False
) -> Tensor | None:
    """`linalg.solve_triangular`."""
    pair = _beside(input, B)
    if pair is None or not (type(upper) is type(left) is type(unitriangular) is bool):
        return None
    a, b = pair
    if b.ndim < a.ndim or b.shape[-2 if left else -1] != a.shape[-1]:
        return None
    return columns(lapack.substituted(a, b, upper, unitriangular, left), input._dtype)


def cholesky_solve(input: Tensor, input2: Tensor, upper: Any = False) -> Tensor | None:
    """`cholesky_solve`."""
    pair = _beside(input2, input) if type(input2) in ORDINARY else None
    if pair is None or type(upper) is not bool:
        return None
    a, b = pair
    if b.ndim < a.ndim or b.shape[-2] != a.shape[-1]:
        return None
    turned = lapack.adjoint(a)
    first, second = (turned, a) if upper else (a, turned)
    half = lapack.substituted(first, b, False, False)
    return columns(lapack.substituted(second, half, True, False), input._dtype)


def cholesky(input: Tensor, *, upper: Any = False) -> Tensor | None:
    """`linalg.cholesky`."""
    a = _square(input)
    if a is None or type(upper) is not bool:
        return None
    found = lapack.made("cholesky_lo", lapack.adjoint(a) if upper else a)
    if lapack.failed(found, a):
        return None
    return columns(lapack.adjoint(found) if upper else found, input._dtype)


def cholesky_back(lower: Tensor, product: Tensor) -> Tensor | None:
    """The gradient of a matrix from the product of the adjoint of its factor and its gradient."""
    a, x = lower._np, product._np
    if a is None or x is None or modes.state.grad or active or a.shape != x.shape or not a.size:
        return None
    half = lapack.substituted(lapack.adjoint(a), lapack.mirrored(x), True, False)
    return columns(lapack.substituted(a, half, False, False, False) / 2, lower._dtype)


def det(A: Tensor) -> Tensor | None:
    """`linalg.det`."""
    a = _square(A)
    return None if a is None else rows(lapack.determinant(a), A._dtype)


def slogdet(A: Tensor) -> Any:
    """`linalg.slogdet`."""
    a = _square(A)
    if a is None:
        return None
    sign, size = lapack.log_determinant(a)
    both = rows(sign, A._dtype), rows(size, A._dtype.to_real())
    return return_types.linalg_slogdet._of(both)
