"""L D L^T of symmetric matrices, which need not be positive: Bunch and Kaufman's pivoting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import shaping
from skimp._ops import batching, return_types
from skimp._ops.batching.call import by_samples
from skimp._ops.linalg.checks import (
    at_batch,
    check_like,
    check_matrices,
    check_square,
    columns,
    first_bad,
    integers,
    linear,
)

_BOUND = (1 + math.sqrt(17)) / 8  # of the growth of elements: Bunch and Kaufman (1977)


def _size(v: Any) -> Any:
    """What LAPACK compares: |re| + |im|."""
    return np.abs(v.real) + np.abs(v.imag)


def _exchange(a: Array, i: int, j: int, hermitian: bool) -> None:
    """Exchange rows and columns i < j of the trailing matrix that the lower triangle stands for."""
    n = len(a)
    if j + 1 < n:
        a[j + 1 :, [i, j]] = a[j + 1 :, [j, i]]
    between = a[i + 1 : j, i].copy()
    a[i + 1 : j, i] = a[j, i + 1 : j].conj() if hermitian else a[j, i + 1 : j]
    a[j, i + 1 : j] = between.conj() if hermitian else between
    if hermitian:
        a[j, i] = a[j, i].conj()
    a[i, i], a[j, j] = a[j, j], a[i, i]


def _factored(a: Array, hermitian: bool) -> tuple[Array, Array, int]:
    """LAPACK's sytf2 (hetf2) for the lower triangle, in place: factors, pivots from 1 (a block of
    two rows: minus the row, twice), and the first zero on the diagonal (0: none).
    """
    n, k, info = len(a), 0, 0
    pivots = np.zeros(n, np.int32)
    while k < n:
        width, chosen = 1, k
        if hermitian:
            a[k, k] = a[k, k].real
        own = _size(a[k, k])
        below = _size(a[k + 1 :, k])
        largest = below.max() if below.size else 0
        if max(own, largest) == 0 or np.isnan(own):
            info = info or k + 1
        else:
            if own < _BOUND * largest:
                width, chosen = _choice(a, k, int(below.argmax()) + k + 1, own, largest)
            at = k + width - 1
            if chosen != at:
                _exchange(a, at, chosen, hermitian)
                if width == 2:
                    a[[k + 1, chosen], k] = a[[chosen, k + 1], k]
            _eliminate(a, k, width, hermitian)
        if width == 1:
            pivots[k] = chosen + 1
        else:
            pivots[k] = pivots[k + 1] = -(chosen + 1)
        k += width
    return a, pivots, info


def _choice(a: Array, k: int, row: int, own: Any, largest: Any) -> tuple[int, int]:
    """The width of the pivot block, and the row to bring to its end."""
    along = _size(a[row, k:row])
    down = _size(a[row + 1 :, row])
    most = max(along.max(), down.max() if down.size else 0)
    if own >= _BOUND * largest * (largest / most):
        return 1, k
    if _size(a[row, row]) >= _BOUND * most:
        return 1, row
    return 2, row


def _eliminate(a: Array, k: int, width: int, hermitian: bool) -> None:
    """Divide the columns of the block by it, and take their products from the rest's triangle."""
    end = k + width
    if hermitian:
        for i in range(k, end):
            a[i, i] = a[i, i].real
    if end >= len(a):
        return
    rest = a[end:, k:end].copy()
    block = a[k:end, k:end].copy()
    if width == 2:
        block[0, 1] = block[1, 0].conj() if hermitian else block[1, 0]
    factors = rest / block[0, 0] if width == 1 else np.linalg.solve(block.T, rest.T).T
    other = rest.conj() if hermitian else rest
    a[end:, end:] -= np.tril(factors @ other.T)
    a[end:, k:end] = factors


def _check(name: str, A: Tensor) -> None:
    check_square(name, A)
    promotion.refuse("ldl_factor_kernel_cpu", A._dtype, dtypes.HALVES)
    if not (A._dtype.is_floating_point or A._dtype.is_complex):
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got "
            f"{promotion.scalar_type_name(A._dtype)}"
        )


@linear("ldl_factor_ex", batch=batching.dims.MATRICES)
def ldl_factor_ex(input: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """L below and the blocks of D on the diagonal of one matrix, the pivots, and where D has its
    first zero (0: none). Reads the lower triangle; has no gradient.

    Dtypes: floating point and complex numbers.
    """
    _check("torch.linalg.ldl_factor_ex", input)
    n = input.shape[-1]
    a = np.array(input._skimp_array(), order="C")
    flat = a.reshape(math.prod(a.shape[:-2]), n, n)
    pivots = np.zeros((len(flat), n), np.int32)
    info = np.zeros(len(flat), np.int32)
    conjugate = hermitian and input._dtype.is_complex
    for i, matrix in enumerate(flat):
        lower, pivots[i], info[i] = _factored(np.tril(matrix), conjugate)
        matrix[...] = np.tril(lower)
    found = integers(info.reshape(a.shape[:-2]))
    at, where = first_bad(found)
    if check_errors and at >= 0:
        raise RuntimeError(
            f"torch.linalg.ldl_factor_ex: {at_batch(at, input.ndim > 2)}The factorization has been "
            f"completed, but the factor D is exactly singular: D[{where},{where}] is zero, and "
            "division by zero will occur if it is used to solve a system of equations."
        )
    return return_types.linalg_ldl_factor_ex(
        columns(a, input._dtype), integers(pivots.reshape(a.shape[:-1])), found
    )


@linear("ldl_factor")
def ldl_factor(input: Tensor, *, hermitian: bool = False) -> Any:
    """L below and the blocks of D on the diagonal of one matrix, and the pivots.

    Dtypes: floating point and complex numbers.
    """
    both, pivots, _ = ldl_factor_ex(input, hermitian=hermitian, check_errors=True)
    return return_types.linalg_ldl_factor(both, pivots)


@linear("ldl_solve", batch=by_samples)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """The X of A X = B, with A's factors and pivots from `ldl_factor`.

    Dtypes: integers, floating point and complex numbers.
    """
    name = "torch.linalg.ldl_solve"
    check_square(name, LD, "LD")
    check_matrices(name, B, "B")
    if B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {LD.shape[-1]} by "
            f"{LD.shape[-1]} but each b matrix is {B.shape[-2]} by {B.shape[-1]}"
        )
    check_like(name, LD, B)
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with "
            f"shape {list(pivots.shape)} and LD with shape {list(LD.shape)}"
        )
    conjugate = hermitian and LD._dtype.is_complex
    ld, b = LD._skimp_array(), B._skimp_array()
    n = ld.shape[-1]
    batch = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    x = np.array(shaping.broadcast(b, (*batch, *b.shape[-2:])), order="C")
    matrices = shaping.broadcast(ld, (*batch, n, n))
    order = shaping.broadcast(pivots._skimp_array(), (*batch, n))
    for where in np.ndindex(*batch):
        _solve(matrices[where], order[where], x[where], conjugate)
    return columns(x, B._dtype)


def _solve(ld: Array, pivots: Array, x: Array, conjugate: bool) -> None:
    """Forward through L and D, then back through L^T (L^H), exchanging rows on the way."""
    n, k = len(ld), 0
    starts = []
    while k < n:
        width = 1 if pivots[k] > 0 else 2
        end = k + width
        at, chosen = end - 1, abs(int(pivots[k])) - 1
        if chosen != at:
            x[[at, chosen]] = x[[chosen, at]]
        x[end:] -= ld[end:, k:end] @ x[k:end]
        block = ld[k:end, k:end].copy()
        if width == 2:
            block[0, 1] = block[1, 0].conj() if conjugate else block[1, 0]
        x[k:end] = x[k] / block[0, 0] if width == 1 else np.linalg.solve(block, x[k:end])
        starts.append((k, end, at, chosen))
        k = end
    for k, end, at, chosen in reversed(starts):
        below = ld[end:, k:end]
        x[k:end] -= (below.conj() if conjugate else below).T @ x[end:]
        if chosen != at:
            x[[at, chosen]] = x[[chosen, at]]


SAYS = """\
Shape: square matrices (..., n, n) and as many rows on the right.
Raises: RuntimeError for other dtypes and for shapes that don't fit."""
