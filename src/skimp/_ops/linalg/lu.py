"""LU factors of matrices: elimination with row exchanges, and what is made of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import NAMESPACES, OPS, general, hidden
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, lapack
from skimp._ops import batching, return_types
from skimp._ops.batching.call import by_samples
from skimp._ops.linalg import older
from skimp._ops.linalg.checks import (
    at_batch,
    check_like,
    check_matrices,
    check_number,
    check_square,
    columns,
    first_bad,
    integers,
    linear,
    rows,
)
from skimp._ops.meta import linalg as shapes

_PANEL = 32  # columns eliminated one by one before the rest of the matrix is brought up to date


def eliminate(a: Array, pivot: bool = True) -> tuple[Array, Array]:
    """L below and U on the diagonal of one array, and each step's pivot row, from 1 (getrf)."""
    found = lapack.factors(a) if pivot else None
    if found is not None:
        return found
    m, n = a.shape[-2:]
    k = min(m, n)
    flat = np.array(a, order="C").reshape(math.prod(a.shape[:-2]), m, n)
    pivots = np.tile(np.arange(1, k + 1, dtype=np.int32), (len(flat), 1))
    which = np.arange(len(flat))
    for start in range(0, k, _PANEL):
        end = min(start + _PANEL, k)
        for j in range(start, end):
            if pivot:
                best = j + _size(flat[:, j:, j]).argmax(-1)
                pivots[:, j] = best + 1
                held = flat[which, best].copy()
                flat[which, best] = flat[:, j]
                flat[:, j] = held
            _step(flat, j, end)
        if end < n:
            lower = lapack.triangle(flat[:, start:end, start:end], False, True)
            flat[:, start:end, end:] = np.linalg.solve(lower, flat[:, start:end, end:])
            flat[:, end:, end:] -= flat[:, end:, start:end] @ flat[:, start:end, end:]
    return flat.reshape(a.shape), pivots.reshape(*a.shape[:-2], k)


def _size(column: Array) -> Array:
    """What LAPACK compares to choose a pivot: |re| + |im|."""
    if column.dtype.kind == "c":
        found: Array = np.abs(column.real) + np.abs(column.imag)
        return found
    return np.abs(column)


def _step(flat: Array, j: int, end: int) -> None:
    """Eliminate column j within the panel; a zero pivot leaves its column as it is."""
    top = flat[:, j, j, None]
    flat[:, j + 1 :, j] /= bare.where(top == 0, 1, top)
    below = flat[:, j + 1 :, j, None] * flat[:, j, None, j + 1 : end]
    flat[:, j + 1 :, j + 1 : end] -= below


def order_of(pivots: Array, m: int) -> Array:
    """The order of rows that successive exchanges make."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(m), (len(flat), 1))
    which = np.arange(len(flat))
    for j in range(flat.shape[-1]):
        other = flat[:, j] - 1
        held = order[which, other].copy()
        order[which, other] = order[:, j]
        order[:, j] = held
    return order.reshape(*pivots.shape[:-1], m)


def _outside(pivots: Tensor, m: int) -> tuple[bool, bool]:
    """Whether some pivots are rows before the first of `m`, or behind the last."""
    if pivots._hollow or not pivots.numel():
        return False, False
    found = pivots._skimp_array()
    return int(found.min()) < 1, int(found.max()) > m


def _permutation_of(pivots: Tensor, n: int, like: Tensor) -> Tensor:
    if pivots._hollow:
        return meta.empty((*pivots.shape[:-1], n, n), like._dtype)
    return rows(_permutation(pivots._skimp_array(), n, like._dtype.np), like._dtype)


def _permutation(pivots: Array, m: int, dtype: Any) -> Array:
    order = order_of(pivots, m)
    found = np.zeros((*order.shape, m), dtype)
    np.put_along_axis(found, order[..., None], 1, -1)
    return np.swapaxes(found, -1, -2)


def _lu_back(g1: Any, g2: Any, result0: Tensor, result1: Tensor, result2: Tensor) -> Tensor:
    """The gradients of L and U carried to P L U; wide and tall matrices part by part."""
    p, lower, upper = result0, result1, result2
    g1 = lower * 0 if g1 is None else g1
    g2 = upper * 0 if g2 is None else g2
    k, cat, tri = lower.shape[-1], OPS["cat"].forms["cat"], NAMESPACES["linalg"]["solve_triangular"]
    l1, u1 = lower.narrow(-2, 0, k), upper.narrow(-1, 0, k)
    gl, gu = g1.narrow(-2, 0, k), g2.narrow(-1, 0, k)
    extra_l, extra_u = lower.shape[-2] - k, upper.shape[-1] - k
    ga2 = gb2 = None
    if extra_l:  # A2 = L2 U1, so L2 = A2 U1^-1
        l2 = lower.narrow(-2, k, extra_l)
        ga2 = tri(u1.mH, g1.narrow(-2, k, extra_l), upper=False, left=False)
        gu = gu - l2.mH @ ga2
    if extra_u:  # A2 = L1 U2
        u2 = upper.narrow(-1, k, extra_u)
        gb2 = tri(l1.mH, g2.narrow(-1, k, extra_u), upper=True, unitriangular=True)
        gl = gl - gb2 @ u2.mH
    inner = (l1.mH @ gl).tril(-1) + (gu @ u1.mH).triu()
    ga = tri(u1.mH, inner, upper=False, left=False)
    ga = tri(l1.mH, ga, upper=True, unitriangular=True)
    if ga2 is not None:
        ga = cat([ga, ga2], -2)
    if gb2 is not None:
        ga = cat([ga, gb2], -1)
    return p @ ga  # type: ignore[no-any-return]


@hidden(
    "_linalg_lu",
    nondiff=(0, 3),
    rule=Rule("LinalgLuBackward0", input=_lu_back),
    batch=batching.dims.MATRICES,
    meta=shapes.lu,
)
def _lu(input: Tensor, pivot: bool) -> Any:
    """P, L, U and the pivots."""
    a = input._skimp_array()
    m, n = a.shape[-2:]
    k = min(m, n)
    both, pivots = eliminate(a, pivot)
    lower = np.tril(both[..., :, :k], -1)
    lower[..., np.arange(k), np.arange(k)] = 1
    p = _permutation(pivots, m, a.dtype)
    d = input._dtype
    return rows(p, d), rows(lower, d), rows(np.triu(both[..., :k, :]), d), integers(pivots)


def _check(name: str, A: Tensor) -> None:
    if A.ndim < 2:
        raise RuntimeError(
            f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead"
        )
    check_number(name, A, "lu_cpu")


@linear("lu")
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """P, L and U with A = P L U; P is empty without `pivot`.

    Dtypes: floating point and complex numbers.
    """
    _check("linalg.lu", A)
    p, lower, upper, _ = _lu(A, pivot)
    return return_types.linalg_lu(p if pivot else A.new_empty((0,)), lower, upper)


@linear("lu_factor_ex", batch=batching.dims.MATRICES)
@shown("LinalgLuFactorExBackward0", "A")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """L and U in one matrix, the exchanges of rows, and where U has its first zero (0: none).

    Dtypes: floating point and complex numbers.
    """
    _check("torch.lu_factor", A)
    m, n = A.shape[-2:]
    if A._hollow or _recorded(A):
        _, lower, upper, pivots = _lu(A, pivot)
        both = _both(lower.tril(-1), upper, m, n).mT.contiguous().mT  # column-major, as LAPACK's
    else:
        one, rows_of = eliminate(A._skimp_array(), pivot)
        both, pivots = columns(one, A._dtype), integers(rows_of)
    if A._hollow:
        return return_types.linalg_lu_factor_ex(
            both, pivots, meta.empty(A.shape[:-2], dtypes.int32)
        )
    diagonal = np.diagonal(both.detach()._skimp_array(), axis1=-2, axis2=-1) == 0
    info = (
        bare.where(diagonal.any(-1), diagonal.argmax(-1) + 1, 0)
        if min(m, n)
        else np.zeros(A.shape[:-2])
    )
    found = integers(info)
    at, where = first_bad(found)
    if check_errors and at >= 0:
        raise RuntimeError(
            f"torch.linalg.lu_factor: {at_batch(at, A.ndim > 2)}U[{where},{where}] is zero and "
            "using it on lu_solve would result in a division by zero. If you still want to "
            "perform the factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)"
        )
    return return_types.linalg_lu_factor_ex(both, pivots, found)


def _recorded(*tensors: Tensor) -> bool:
    return modes.state.grad and any([t._rg for t in tensors])


def _both(lower: Tensor, upper: Tensor, m: int, n: int) -> Tensor:
    """A strict lower triangle and an upper one in the matrix that has room for both."""
    cat = OPS["cat"].forms["cat"]
    k = min(m, n)
    if m > k:
        upper = cat([upper, upper.new_zeros((*upper.shape[:-2], m - k, n))], -2)
    if n > k:
        lower = cat([lower, lower.new_zeros((*lower.shape[:-2], m, n - k))], -1)
    return lower + upper


@linear("lu_factor")
@shown("LinalgLuFactorExBackward0", "A")
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """L and U in one matrix, and the exchanges of rows.

    Dtypes: floating point and complex numbers.
    """
    both, pivots, _ = lu_factor_ex(A, pivot=pivot, check_errors=True)
    return return_types.linalg_lu_factor(both, pivots)


@general(method=False, out=True, composite=False)
@shown("LuUnpackBackward0", "LU_data")
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """P, L and U of what `lu_factor` returns."""
    m, n = LU_data.shape[-2:]
    if unpack_pivots and LU_pivots._dtype is not dtypes.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 "
            "dtype.\nNote: this function is intended to be used with the output produced by "
            "torch.linalg.lu_factor"
        )
    k = min(m, n)
    p = lower = upper = LU_data.new_empty((0,))
    if unpack_data:
        eye = NAMESPACES[""]["eye"](m, k, dtype=LU_data._dtype, device=LU_data.device)
        lower = LU_data.narrow(-1, 0, k).tril(-1) + eye
        upper = LU_data.narrow(-2, 0, k).triu()
    if unpack_pivots:
        if any(_outside(LU_pivots, m)):
            raise RuntimeError(
                "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you "
                "properly pass the result of lu_factor?"
            )
        p = _permutation_of(LU_pivots, m, LU_data)
    return return_types.lu_unpack(p, lower, upper)


@linear("lu_solve", batch=by_samples)
@shown("LinalgLuSolveBackward0", "LU", "B")
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The X of A X = B (X A = B without `left`), with A's LU factors; of A's adjoint on wish.

    Dtypes: floating point and complex numbers.
    """
    name = "torch.linalg.lu_solve"
    check_square(name, LU, "LU")
    check_matrices(name, B, "B")
    check_like(name, LU, B)
    if pivots._dtype is not dtypes.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    _check_pivots(tuple(LU.shape), tuple(pivots.shape))
    words = "greater or equal to 1", "smaller or equal to LU.size(-2)"
    for outside, what in zip(_outside(pivots, LU.shape[-1]), words, strict=True):
        if outside:
            raise RuntimeError(
                f"Pivots given to lu_solve must all be {what}. Did you properly pass the result of "
                "lu_factor?"
            )
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    if not (LU._hollow or B._hollow or pivots._hollow or _recorded(LU, B)):
        arrays = LU._skimp_array(), pivots._skimp_array(), B._skimp_array()
        found = lapack.by_factors(*arrays, adjoint)
        if found is not None:
            return columns(found, B._dtype)
    p = _permutation_of(pivots, LU.shape[-1], LU)
    tri = NAMESPACES["linalg"]["solve_triangular"]
    if adjoint:
        half = tri(LU.mH, B, upper=False)
        made = p @ tri(LU.mH, half, upper=True, unitriangular=True)
        return made.mT.contiguous().mT  # type: ignore[no-any-return]
    half = tri(LU, p.mT @ B, upper=False, unitriangular=True)
    return tri(LU, half, upper=True)  # type: ignore[no-any-return]


def _check_pivots(factors: tuple[int, ...], pivots: tuple[int, ...]) -> None:
    """Refuse pivots that are not one for each row: LAPACK would take those of others."""
    if not pivots:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    if pivots[-1] != factors[-1]:
        raise RuntimeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the "
            f"matrix, but got {pivots[-1]} for {factors[-1]} rows"
        )
    if pivots != factors[:-1]:
        raise RuntimeError(
            "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got "
            f"pivots with shape {list(pivots)} instead of {list(factors[:-1])}"
        )


@general("lu_solve", out="layout", autocast="float32")
@shown("LinalgLuSolveBackward0", "LU_data", "input")
def torch_lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The X of A X = input, with A's LU factors.

    Dtypes: floating point and complex numbers.
    """
    warn_once(older.LU_SOLVE)
    return lu_solve(LU_data, LU_pivots, input)


SAYS = """\
Shape: matrices (..., m, n); dims before the last two are a batch.
Raises: RuntimeError or NotImplementedError for other dtypes; RuntimeError for shapes that don't
fit and, where it is asked for, a singular matrix."""
