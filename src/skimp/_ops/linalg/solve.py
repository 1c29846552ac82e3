"""Inverses, solutions of linear systems and determinants, with their derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import NAMESPACES, general, hidden
from skimp._engine.dispatch.rows import conj
from skimp._engine.dispatch.transforms import active
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import formats, meta
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, lapack
from skimp._ops import batching, return_types
from skimp._ops.linalg import older, small
from skimp._ops.linalg.checks import (
    LinAlgError,
    check_factor,
    check_like,
    check_matrices,
    check_number,
    check_same_type,
    check_square,
    columns,
    failed_inverse,
    first_bad,
    integers,
    linear,
    rows,
)
from skimp._ops.linalg.lu import eliminate
from skimp._ops.linalg.matmul import adjoint_times, times_adjoint
from skimp._ops.linalg.matmul_vector import outer_adjoint
from skimp._ops.meta import linalg as shapes
from skimp._ops.reduce.reductions import products_of_others

# -- inverses -------------------------------------------------------------------------------------


def zero_pivots(a: Array) -> Array:
    """For each matrix the first pivot of its elimination that is 0, from 1; 0 where none is."""
    lu, _ = eliminate(a)
    diagonal = np.diagonal(lu, axis1=-2, axis2=-1) == 0
    return bare.where(diagonal.any(-1), diagonal.argmax(-1) + 1, 0)


def _inverse(a: Array) -> tuple[Array, Array]:
    try:
        return lapack.inverse(a), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        info = zero_pivots(a)
        good = bare.where((info == 0)[..., None, None], a, np.eye(a.shape[-1], dtype=a.dtype))
        return bare.where((info == 0)[..., None, None], np.linalg.inv(good), math.inf), info


def _inverse_back(g: Tensor, result: Tensor) -> Tensor:
    return -times_adjoint(adjoint_times(result, g), result)


@hidden(
    nondiff=(1,),
    rule=Rule("LinalgInvExBackward0", A=lambda g0, result0: _inverse_back(g0, result0)),
    batch=batching.dims.MATRICES,
    meta=shapes.inverse,
)
def _inv_ex(A: Tensor) -> Any:
    found, info = _inverse(A._skimp_array())
    return columns(found, A._dtype), integers(info)


@linear("inv_ex", autocast="float32", batch=batching.dims.MATRICES)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """The inverses of square matrices, and where each elimination met a zero (0: nowhere)."""
    check_square("linalg.inv", A)
    check_number("linalg.inv", A)
    found, info = _inv_ex(A)
    if check_errors:
        failed_inverse("linalg.inv", info)
    return return_types.linalg_inv_ex(found, info)


@linear(
    "inv",
    out="own layout",
    autocast="float32",
    fast=small.inv,
    fast_rule=Rule("LinalgInvExBackward0", A=_inverse_back),
)
def inv(A: Tensor) -> Tensor:
    """The inverses of square matrices."""
    return inv_ex(A, check_errors=True)[0]  # type: ignore[no-any-return]


@general(out="own layout", autocast="float32")
def inverse(input: Tensor) -> Tensor:
    """The inverses of square matrices."""
    return inv(input)


# -- solutions ------------------------------------------------------------------------------------


def _solution(a: Array, b: Array) -> tuple[Array, Array]:
    batch = a.shape[:-2]
    try:
        return lapack.solution(a, b), np.zeros(batch, np.int32)
    except np.linalg.LinAlgError:
        info = zero_pivots(a)
        good = bare.where((info == 0)[..., None, None], a, np.eye(a.shape[-1], dtype=a.dtype))
        return bare.where((info == 0)[..., None, None], np.linalg.solve(good, b), math.nan), info


def _solve_back(g: Tensor, A: Tensor, result: Tensor, needs: Any) -> tuple[Any, Any]:
    vector = len(shape_of(g)) < len(shape_of(A))
    back: Any = small.solve_adjoint(A, g)
    if back is None:
        back = _solve_ex(A.mH, g.unsqueeze(-1) if vector else g)[0]
        back = back.squeeze(-1) if vector else back
    if "A" not in needs:
        return None, back
    if vector and not A._dtype.is_complex:
        return -outer_adjoint(back, result), back
    one, other = (back.unsqueeze(-1), result.unsqueeze(-1)) if vector else (back, result)
    return -times_adjoint(one, other), back


def _solve_ex_back(g0: Tensor, A: Tensor, result0: Tensor, needs: Any) -> tuple[Any, Any]:
    return _solve_back(g0, A, result0, needs)


@hidden(
    nondiff=(1,),
    rule=Rule("LinalgSolveExBackward0", {("A", "B"): _solve_ex_back}),
    batch=batching.dims.solve,
    meta=shapes.solution,
)
def _solve_ex(A: Tensor, B: Tensor) -> Any:
    found, info = _solution(A._skimp_array(), B._skimp_array())
    return columns(found, A._dtype), integers(info)


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """B holds vectors if it has one dimension, or A's dimensions without the last."""
    own, right = shape_of(A), shape_of(B)
    return len(right) == 1 or right == own[:-1]


def check_sides(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    at = -2 if left else -1
    own, right = shape_of(A), shape_of(B)
    if own[at] != right[at]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({own[-2]}x{own[-1]} and {right[-2]}x{right[-1]})"
        )


@linear("solve_ex", batch=batching.dims.solve)
@shown("LinalgSolveExBackward0", "A", "B")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """The X of A X = B (X A = B without `left`), and where each elimination met a zero."""
    check_square("linalg.solve", A)
    check_number("linalg.solve", A, "lu_cpu")
    check_like("linalg.solve", A, B)
    vector = _is_vector(A, B)
    if vector and not left:
        raise RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for "
            "left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    b = B.unsqueeze(-1) if vector else B
    check_matrices("linalg.solve", b, "B")
    check_sides("linalg.solve", A, b, left)
    a, b = _batched(A, b)
    found, info = _solve_ex(a, b) if left else _solve_ex(a.mT, b.mT)
    if check_errors:
        failed_inverse("linalg.solve", info)
    found = found if left else found.mT
    if vector:
        found = found.squeeze(-1)
        if found.ndim > 1:  # the last two dims count as a matrix, column-major as all results
            found = found.mT.contiguous().mT
    return return_types.linalg_solve_ex(found, info)


def _batched(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch dimensions that they have together."""
    own, right = shape_of(A), shape_of(B)
    if own[:-2] == right[:-2]:
        return A, B
    batch = layouts.broadcast_shapes(own[:-2], right[:-2])
    return A.expand((*batch, *own[-2:])), B.expand((*batch, *right[-2:]))


@linear(
    "solve",
    out="own layout",
    autocast="float32",
    fast=small.solve,
    fast_rule=Rule("LinalgSolveExBackward0", {("A", "B"): _solve_back}),
)
@shown("LinalgSolveExBackward0", "A", "B")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X of A X = B; of X A = B without `left`."""
    return solve_ex(A, B, left=left, check_errors=True)[0]  # type: ignore[no-any-return]


# -- triangular systems ---------------------------------------------------------------------------


def _triangular_back(
    g: Tensor,
    input: Tensor,
    result: Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
    needs: Any,
) -> tuple[Any, Any]:
    back = _solve_triangular(input.mH, g, not upper, left, unitriangular)
    if "input" not in needs:
        return None, back
    ga = -(times_adjoint(back, result) if left else adjoint_times(result, back))
    edge = int(unitriangular)
    return (ga.triu(edge) if upper else ga.tril(-edge)), back


_TRIANGULAR = Rule("LinalgSolveTriangularBackward0", {("input", "B"): _triangular_back})


@hidden(rule=_TRIANGULAR, batch=batching.dims.MATRICES, meta=shapes.triangular)
def _solve_triangular(
    input: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool
) -> Tensor:
    a, b = input._skimp_array(), B._skimp_array()
    return columns(lapack.substituted(a, b, upper, unitriangular, left), input._dtype)


@linear("solve_triangular", out=True, fast=small.solve_triangular, fast_rule=_TRIANGULAR)
@shown("LinalgSolveTriangularBackward0", "input", "B")
def solve_triangular(
    input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The X of A X = B (X A = B without `left`), reading only a triangle of A."""
    name = "linalg.solve_triangular"
    check_square(name, input)
    check_matrices(name, B, "B")
    check_sides(name, input, B, left)
    check_number(name, input, "triangular_solve_cpu")
    a, b = _batched(input, B if B._dtype is input._dtype else B.to(input._dtype))
    return _solve_triangular(a, b, upper, left, unitriangular)


@general(out="layout", autocast="float32")
@shown("TriangularSolveBackward0", "input", "A")
def triangular_solve(
    input: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    """The X of A X = input with a triangle of A, and A (deprecated by `solve_triangular`)."""
    warn_once(older.TRIANGULAR_SOLVE)
    check_same_type(input, A)
    a, side = (A.mT, not upper) if transpose else (A, upper)
    found = solve_triangular(a, input, upper=side, unitriangular=unitriangular)
    copied = _batched(A, input)[0].mT.clone(memory_format=formats.contiguous_format).mT
    return return_types.triangular_solve(found, copied)


def _factor_back(common: Tensor, factor: Tensor, upper: bool) -> Tensor:
    """From the gradient of A = L L^H to L's; PyTorch leaves what lies beyond the triangle."""
    both = common + common.mH
    return -(factor @ both) if upper else -(both @ factor)


def _cholesky_solve_back(
    g: Tensor, input2: Tensor, result: Tensor, upper: bool, needs: Any
) -> tuple[Any, Any]:
    quiet = not (modes.state.grad or active)
    back: Any = small.cholesky_solve(g, input2, upper) if quiet else None
    if back is None:
        back = _cholesky_solve(g, input2, upper)
    if "input2" not in needs:
        return back, None
    return back, _factor_back(times_adjoint(back, result), input2, upper)


_CHOLESKY_SOLVE = Rule("CholeskySolveBackward0", {("input", "input2"): _cholesky_solve_back})


@hidden(rule=_CHOLESKY_SOLVE, batch=batching.dims.MATRICES)
def _cholesky_solve(input: Tensor, input2: Tensor, upper: bool) -> Tensor:
    first, second = (input2.mH, input2) if upper else (input2, input2.mH)
    half = _solve_triangular(first, input, False, True, False)
    return _solve_triangular(second, half, True, True, False)


@general(out=True, autocast="float32", fast=small.cholesky_solve, fast_rule=_CHOLESKY_SOLVE)
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The X of A X = input, where L is a Cholesky factor of A."""
    check_factor("cholesky_solve", input, input2)
    a, b = _batched(input2, input)
    return _cholesky_solve(b, a, upper)


@hidden(
    rule=Rule(
        "CholeskyInverseBackward0",
        input=lambda g, input, result, upper: _factor_back(result @ g @ result, input, upper),
    ),
    batch=batching.dims.MATRICES,
    meta=shapes.square,
)
def _cholesky_inverse(input: Tensor, upper: bool) -> Tensor:
    half = solve_triangular(input.mH if upper else input, _eye(input), upper=False)
    return columns((half.mH @ half)._skimp_array(), input._dtype)


@general(out="layout", autocast="float32")
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix whose Cholesky factor this is."""
    check_square("cholesky_inverse", input, "A")
    return _cholesky_inverse(input, upper)


def _eye(t: Tensor) -> Tensor:
    """The identity of the size of a square matrix, to be broadcast."""
    return meta.beside(np.eye(t.shape[-1], dtype=t._dtype.np), t._dtype, t)


# -- determinants ---------------------------------------------------------------------------------


def _det_back(g: Tensor, A: Tensor, result: Tensor) -> Tensor:
    """The determinant's gradient is the matrix of its cofactors, through the singular values where
    there is no inverse.
    """
    if A.shape[-1] == 0:
        return A * 0
    g = g.unsqueeze(-1).unsqueeze(-1)
    found = conj(result).unsqueeze(-1).unsqueeze(-1) * _eye(A)
    solution, info = solve_ex(A.mH, found)
    if bool((result != 0).all().item()) and not info._skimp_array().any():
        return g * solution  # type: ignore[no-any-return]
    return g * _cofactors(A)


def _cofactors(a: Tensor) -> Tensor:
    """The conjugate of the matrix of cofactors: products of the other singular values."""
    u, s, vh = NAMESPACES["linalg"]["svd"](a)
    turn = conj(det(u) * det(vh))
    others = products_of_others(s, -1).to(a._dtype).unsqueeze(-2)
    return turn.unsqueeze(-1).unsqueeze(-1) * ((u * others) @ vh)  # type: ignore[no-any-return]


_DET = Rule("LinalgDetBackward0", A=_det_back)


@hidden("_linalg_det", rule=_DET, batch=batching.dims.MATRICES, meta=shapes.determinant)
def _det(A: Tensor) -> Tensor:
    return rows(lapack.determinant(A._skimp_array()), A._dtype)


@linear("det", out="own layout", fast=small.det, fast_rule=_DET)
def det(A: Tensor) -> Tensor:
    """The determinants of square matrices."""
    check_square("linalg.det", A)
    check_number("linalg.det", A, "lu_cpu")
    return _det(A)


@general("det")
def torch_det(input: Tensor) -> Tensor:
    """The determinants of square matrices."""
    return det(input)


def _slogdet_back(g0: Any, g1: Any, A: Tensor, result0: Tensor) -> Tensor:
    g = 0 if g1 is None else g1
    if g0 is not None and A._dtype.is_complex:
        g = g - 1j * (conj(g0) * result0).imag
    if not isinstance(g, Tensor):
        return A * 0
    each = g.to(A._dtype).unsqueeze(-1).unsqueeze(-1) * _eye(A)
    made = small.solve_adjoint(A, each)
    if made is not None:
        return made
    # of a singular matrix no finite number, but an error only where it is differentiated again
    return solve_ex(A.mH, each, check_errors=modes.state.grad)[0]  # type: ignore[no-any-return]


_SLOGDET = Rule("LinalgSlogdetBackward0", A=_slogdet_back)


@hidden("_linalg_slogdet", rule=_SLOGDET, batch=batching.dims.MATRICES, meta=shapes.slogdet)
def _slogdet(A: Tensor) -> Any:
    sign, size = lapack.log_determinant(A._skimp_array())
    return rows(sign, A._dtype), rows(size, A._dtype.to_real())


@linear("slogdet", out="own layout", fast=small.slogdet, fast_rule=_SLOGDET)
def slogdet(A: Tensor) -> Any:
    """The signs (phases) of determinants, and the logarithms of their sizes."""
    check_square("linalg.slogdet", A)
    check_number("linalg.slogdet", A)
    return return_types.linalg_slogdet(_slogdet(A))


@general("slogdet", out=True)
def torch_slogdet(input: Tensor) -> Any:
    """The signs (phases) of determinants, and the logarithms of their sizes."""
    return return_types.slogdet(tuple(slogdet(input)))


@general()
def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants; nan of a negative one."""
    check_square("logdet", input)
    check_number("logdet", input)
    sign, size = slogdet(input)
    if input._dtype.is_complex:
        return sign.log() + size  # type: ignore[no-any-return]
    return NAMESPACES[""]["where"](sign < 0, math.nan, size)  # type: ignore[no-any-return]


# -- tensors as matrices --------------------------------------------------------------------------


@linear("tensorinv", out=True, autocast="float32")
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a map from its last dimensions to its first `ind`.

    Shape: (*a, *b) of as many numbers in a as in b; the result (*b, *a).
    """
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    before, after = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    n, m = math.prod(before), math.prod(after)
    if n != m:
        raise RuntimeError(
            "Expected self to satisfy the requirement "
            f"prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {m} != {n}"
        )
    found, info = inv_ex(A.reshape(m, n))
    if first_bad(info)[0] >= 0:
        raise LinAlgError("Failed to invert the input tensor, because it is singular.")
    return found.reshape((*after, *before))  # type: ignore[no-any-return]


@linear("tensorsolve", autocast="float32")
def tensorsolve(input: Tensor, other: Tensor, dims: Any = None) -> Tensor:
    """The X of tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end first.

    Shape: (*b, *x) and b; the result x.
    """
    if dims is not None:
        input = input.movedim(tuple(dims), tuple(range(input.ndim - len(dims), input.ndim)))
    shape = tuple(input.shape[other.ndim :])
    n, m = math.prod(shape), math.prod(input.shape[: other.ndim])
    if n != m:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {n} != {m}"
        )
    return solve(input.reshape(n, n), other.reshape(-1)).reshape(shape)


SAYS = """\
Shape: square matrices (..., n, n); dims before the last two are a batch.
Dtypes: floating point and complex numbers.
Raises: RuntimeError or NotImplementedError for other dtypes; RuntimeError for shapes that don't
fit; LinAlgError for a singular matrix where it is to be inverted."""
