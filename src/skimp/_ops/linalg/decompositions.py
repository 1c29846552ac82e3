"""Factors of matrices: QR, Cholesky, products of reflections, with their derivatives."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import OPS, general, hidden
from skimp._engine.dispatch.rows import conj
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, lapack, shaping
from skimp._ops import batching, return_types
from skimp._ops.linalg import older, small
from skimp._ops.linalg.checks import (
    LinAlgError,
    at_batch,
    check_matrices,
    check_number,
    check_square,
    columns,
    first_bad,
    integers,
    linear,
    recorded,
    rows,
)
from skimp._ops.linalg.matmul import adjoint_times
from skimp._ops.linalg.matmul_vector import vdot
from skimp._ops.linalg.solve import inv, solve_triangular
from skimp._ops.meta import linalg as shapes

# -- QR -------------------------------------------------------------------------------------------


def _qr_square_back(gq: Tensor, gr: Tensor, q: Tensor, r: Tensor) -> Tensor:
    inner = (gr @ r.mH - q.mH @ gq).triu()
    both = inner + inner.mH
    half = both - both.diagonal(0, -2, -1).diag_embed() / 2
    return solve_triangular(r.mH, gq + q @ half, upper=False, left=False)


def _qr_back(
    g0: Any, g1: Any, input: Tensor, result0: Tensor, result1: Tensor, mode: str
) -> Tensor:
    m, n = input.shape[-2:]
    if mode == "complete" and m > n:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols"
        )
    g0 = result0 * 0 if g0 is None else g0
    g1 = result1 * 0 if g1 is None else g1
    if m >= n:
        return _qr_square_back(g0, g1, result0, result1)
    rest = g1.narrow(-1, m, n - m)  # R = [R1, Q^H A2]
    gq = g0 + input.narrow(-1, m, n - m) @ rest.mH
    first = _qr_square_back(gq, g1.narrow(-1, 0, m), result0, result1.narrow(-1, 0, m))
    return OPS["cat"].forms["cat"]([first, result0 @ rest], -1)  # type: ignore[no-any-return]


@hidden(
    "_linalg_qr",
    rule=Rule("LinalgQrBackward0", input=_qr_back),
    batch=batching.dims.MATRICES,
    meta=shapes.qr,
)
def _qr(input: Tensor, mode: Literal["reduced", "complete"]) -> Any:
    q, r = np.linalg.qr(input._skimp_array(), mode)
    return columns(q, input._dtype), columns(r, input._dtype)


@linear("qr", autocast="float32")
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and an upper triangular R with A = Q R (mode "r": R alone)."""
    check_matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    check_number("linalg.qr", A, "geqrf_cpu")
    if mode != "r":
        return return_types.linalg_qr(_qr(A, mode))
    if recorded(A):
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. "
            "Please use linalg.qr(A, mode='reduced')"
        )
    return return_types.linalg_qr(
        A.new_empty((0,)), columns(np.linalg.qr(A._skimp_array(), "r"), A._dtype)
    )


@general("qr", out="layout", autocast="float32")
def torch_qr(input: Tensor, some: bool = True) -> Any:
    """`linalg.qr`, reduced or complete."""
    warn_once(older.QR)
    return return_types.qr(tuple(qr(input, "reduced" if some else "complete")))


# -- Cholesky -------------------------------------------------------------------------------------


def _minor(a: Array) -> int:
    """The order of the first leading minor that is not positive-definite."""
    for k in range(1, len(a) + 1):
        try:
            np.linalg.cholesky(a[:k, :k])
        except np.linalg.LinAlgError:
            return k
    return 0


def _factor(a: Array) -> tuple[Array, Array]:
    """Lower factors, and for each matrix the first minor that has none (0: all have)."""
    try:
        return lapack.lower(a), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        flat = a.reshape(-1, *a.shape[-2:])
        info = np.array([_minor(one) for one in flat], np.int32)
        good = bare.where((info == 0)[:, None, None], flat, np.eye(a.shape[-1], dtype=a.dtype))
        found = np.linalg.cholesky(good)
        for i in np.flatnonzero(info):
            k = info[i] - 1
            found[i] = np.tril(flat[i])
            if k:
                found[i, :k, :k] = np.linalg.cholesky(flat[i, :k, :k])
        return found.reshape(a.shape), info.reshape(a.shape[:-2])


def _cholesky_back(g: Tensor, result: Tensor, upper: bool) -> Tensor:
    lower, g = (result.mH, g.mH) if upper else (result, g)
    product = adjoint_times(lower, g)
    made = small.cholesky_back(lower, product)
    if made is not None:
        return made
    below = product.tril()
    inner = below + below.tril(-1).mH  # whose diagonal may be complex
    half = solve_triangular(lower.mH, inner, upper=True)
    return solve_triangular(lower, half, upper=False, left=False) / 2


@hidden(
    "_cholesky_ex",
    nondiff=(1,),
    rule=Rule(
        "LinalgCholeskyExBackward0",
        input=lambda g0, result0, upper: _cholesky_back(g0, result0, upper),
    ),
    batch=batching.dims.MATRICES,
    meta=shapes.factor,
)
def _cholesky(input: Tensor, upper: bool) -> Any:
    a = input._skimp_array()
    found, info = _factor(lapack.adjoint(a) if upper else a)
    if upper:
        found = lapack.adjoint(found)
    return columns(found, input._dtype), integers(info)


@linear("cholesky_ex", autocast="float32", batch=batching.dims.MATRICES)
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """L with A = L L^H, and the first leading minor that is not positive-definite (0: none)."""
    check_square("linalg.cholesky", input)
    check_number("linalg.cholesky", input, "cholesky_cpu")
    found, info = _cholesky(input, upper)
    at, where = first_bad(info)
    if check_errors and at >= 0:
        raise LinAlgError(
            f"linalg.cholesky: {at_batch(at, input.ndim > 2)}The factorization could not be "
            f"completed because the input is not positive-definite (the leading minor of order "
            f"{where} is not positive-definite)."
        )
    return return_types.linalg_cholesky_ex(found, info)


@linear(
    "cholesky",
    out="own layout",
    autocast="float32",
    fast=small.cholesky,
    fast_rule=Rule("LinalgCholeskyExBackward0", input=_cholesky_back),
)
def cholesky(input: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangular L with A = L L^H; its adjoint if `upper`."""
    return cholesky_ex(input, upper=upper, check_errors=True)[0]  # type: ignore[no-any-return]


@general("cholesky", out=True, autocast="float32")
@shown("CholeskyBackward0", "input")
def torch_cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The lower triangular L with A = L L^H; its adjoint if `upper`."""
    if input._dtype.category < dtypes.FLOAT:
        raise no_kernel("cholesky_cpu", input._dtype)
    warn_once(older.CHOLESKY)
    return cholesky(input, upper=upper)


# -- reflections ----------------------------------------------------------------------------------


def _reflections(A: Tensor, tau: Tensor) -> Tensor:
    m, n = A.shape[-2:]
    k = tau.shape[-1]
    below = A.tril(-1)
    made = meta.beside(np.eye(m, n, dtype=A._dtype.np), A._dtype, A).expand(A.shape)
    for i in reversed(range(k)):
        one = meta.beside(np.eye(m, 1, -i, dtype=A._dtype.np), A._dtype, A)
        v = below.narrow(-1, i, 1) + one
        made = made - tau.narrow(-1, i, 1).unsqueeze(-1) * (v @ (v.mH @ made))
    return made


@linear("householder_product", autocast="float32", batch=batching.dims.ELEMENTWISE)
@shown("LinalgHouseholderProductBackward0", "input", "tau")
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of reflections, as `geqrf` stores them."""
    name = "torch.linalg.householder_product"
    if input._dtype.category < dtypes.FLOAT:
        raise no_kernel("orgqr_cpu", input._dtype)
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if input.shape[-2] < input.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if input.shape[-1] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    if input.ndim - tau.ndim != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal "
            f"to {tau.ndim} and input.ndim is equal to {input.ndim}"
        )
    if tuple(tau.shape[:-1]) != tuple(input.shape[:-2]):
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
            f"{list(tau.shape[:-1])}"
        )
    if input._dtype is not tau._dtype:
        raise RuntimeError(
            f"{name}: tau dtype {tau._dtype.name} does not match input dtype {input._dtype.name}"
        )
    check_number(name, input, "orgqr_cpu")
    if not input.numel():
        return input.clone()
    made = _reflections(input, tau)
    return made.mT.contiguous().mT  # column-major, as LAPACK's


@general(out=True, autocast="float32")
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """`linalg.householder_product`."""
    return householder_product(input, input2)


# -- powers and the exponential -------------------------------------------------------------------


def matrix_power_of(A: Tensor, n: int) -> Tensor:

    check_square("linalg.matrix_power", A)
    if n < 0:
        return matrix_power_of(inv(A), -n)
    if n == 0:
        eye = meta.beside(np.eye(A.shape[-1], dtype=A._dtype.np), A._dtype, A)
        return A.clone().copy_(eye.expand(A.shape))
    found = None
    square = A
    while n:
        if n & 1:
            found = square if found is None else found @ square
        n = n >> 1  # not in place: it may be the caller's tensor
        if n:
            square = square @ square
    assert found is not None
    return found.clone() if found is A else found


@linear("matrix_power", out="own layout")
def matrix_power(input: Tensor, n: int) -> Tensor:
    """The n-th power of square matrices; of their inverses where n is negative.

    Dtypes: floating point and complex numbers; integers where n is not negative.
    """
    return matrix_power_of(input, n)


@general("matrix_power", out=True)
def torch_matrix_power(input: Tensor, n: int) -> Tensor:
    """The n-th power of square matrices; of their inverses where n is negative.

    Dtypes: floating point and complex numbers; integers where n is not negative.
    """
    return matrix_power_of(input, n)


_PADE = [1.0]
for _j in range(1, 14):
    _PADE.append(_PADE[-1] * (14 - _j) / (_j * (27 - _j)))


def _exponential(a: Array) -> Array:
    """Scaling and squaring with the Pade approximant of degree 13 (Higham 2005)."""
    n = a.shape[-1]
    wide: Array = a.astype(bare.result_type(a.dtype, np.float64))
    size = np.abs(wide).sum(-2).max(initial=0.0)
    if not math.isfinite(size):
        return np.full_like(a, math.nan)
    halvings = max(0, math.ceil(math.log2(size / 5.37))) if size else 0
    wide = wide / 2.0**halvings
    square = wide @ wide
    power = shaping.broadcast(np.eye(n, dtype=wide.dtype), wide.shape)
    even, odd = np.zeros_like(wide), np.zeros_like(wide)
    for j in range(0, 14, 2):
        even = even + _PADE[j] * power
        odd = odd + _PADE[j + 1] * power
        power = power @ square
    odd = wide @ odd
    found = np.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        found = found @ found
    return found.astype(a.dtype)


def _exp_back(g: Tensor, input: Tensor) -> Tensor:
    """The derivative at A in direction G is the corner of exp([[A, G], [0, A]]) (Mathias 1996)."""
    cat, n = OPS["cat"].forms["cat"], input.shape[-1]
    a = input.mH
    whole = cat([cat([a, g], -1), cat([a * 0, a], -1)], -2)
    return _matrix_exp(whole).narrow(-2, 0, n).narrow(-1, n, n)


@hidden(
    rule=Rule("LinalgMatrixExpBackward0", input=_exp_back),
    batch=batching.dims.MATRICES,
    meta=shapes.square_rows,
)
def _matrix_exp(input: Tensor) -> Tensor:
    a = input._skimp_array()
    if not a.size:
        return rows(bare.empty_like(a), input._dtype)
    work = a.astype(np.float32) if a.dtype.kind not in "fc" or a.itemsize == 2 else a
    return rows(_exponential(work), input._dtype)


@general(namespaces=("", "linalg"))
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of square matrices."""
    check_square("linalg.matrix_exp", input)
    if input._dtype.category < 2:
        check_number("linalg.matrix_exp", input)
    return _matrix_exp(input)


# -- vectors and diagonals ------------------------------------------------------------------------


@linear("vecdot", out="own layout", autocast="lower")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The inner products along a dimension, of the first's conjugate.

    Shape: (..., n) and (..., n), which broadcast; the result without `dim`.
    """
    if x._dtype.category < 2:
        check_number("linalg.vecdot", x)
    if x._dtype is not y._dtype:
        raise RuntimeError("linalg.vecdot: Expected x and y to have the same dtype")
    shape = shape_of(x)
    if len(shape) == 1 and shape == shape_of(y):
        return vdot(x, y)
    return (conj(x) * y).sum(dim)  # type: ignore[no-any-return]


@general("diagonal", method=False, namespaces=("linalg",), batch=batching.dims.diagonal)
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of matrices.

    Shape: the input's less two dims, and the diagonal.
    Memory: a view, which shares the input's bytes.
    """
    return A.diagonal(offset, dim1, dim2)


SAYS = """\
Shape: matrices (..., m, n); dims before the last two are a batch.
Dtypes: floating point and complex numbers.
Raises: RuntimeError for other dtypes and for shapes that don't fit; LinAlgError for a matrix that
is not positive definite where it is to be.
Memory: a new tensor."""
