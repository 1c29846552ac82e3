"""Singular values, eigenvalues, and what is made of them: pseudo-inverses, least squares."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import OPS, general, hidden
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._ops import batching, return_types
from skimp._ops.batching.call import by_samples
from skimp._ops.linalg.checks import (
    LinAlgError,
    check_like,
    check_matrices,
    check_number,
    check_square,
    columns,
    linear,
    recorded,
    rows,
)
from skimp._ops.linalg.solve import inv_ex, solve
from skimp._ops.meta import linalg as shapes

# -- singular values ------------------------------------------------------------------------------


def _gaps(s: Tensor) -> Tensor:
    """s_k - s_j in row j and column k, with ones on the diagonal."""
    eye = meta.beside(np.eye(s.shape[-1], dtype=s._dtype.np), s._dtype, s)
    return s.unsqueeze(-2) - s.unsqueeze(-1) + eye


def _skew(x: Tensor) -> Tensor:
    return x - x.mH


def _svd_back(
    g0: Any, g1: Any, g2: Any, input: Tensor, result0: Tensor, result1: Tensor, result2: Tensor
) -> Tensor:
    """Townsend, Differentiating the singular value decomposition (2016); Wan and Zhang (2019) for
    complex matrices.
    """
    m, n = input.shape[-2:]
    k = result1.shape[-1]
    u, s, vh = result0.narrow(-1, 0, k), result1, result2.narrow(-2, 0, k)
    if g0 is None and g1 is None and g2 is None:
        return input * 0
    if g0 is None and g2 is None:
        return u @ (g1.to(u._dtype).unsqueeze(-1) * vh)  # type: ignore[no-any-return]
    line, size = s.unsqueeze(-2), s.unsqueeze(-1)
    gaps = _gaps(s) * (line + size)
    gaps = gaps - gaps.diagonal(0, -2, -1).diag_embed() + _identity(s)
    inner = (result1 * 0 if g1 is None else g1).to(u._dtype).diag_embed()
    gu = None if g0 is None else g0.narrow(-1, 0, k)
    if gu is not None:
        inside = u.mH @ gu
        inner = inner + _skew(inside) / gaps * line
        if u._dtype.is_complex:
            phase = _skew(inside).diagonal(0, -2, -1) / (s * 2)
            inner = inner - inner_diagonal(_skew(inside) / gaps * line) + phase.diag_embed()
    gv = None if g2 is None else g2.narrow(-2, 0, k).mH
    if gv is not None:
        turned = size * (_skew(vh @ gv) / gaps)
        inner = inner + (turned - inner_diagonal(turned))
    made = u @ inner @ vh
    if gu is not None and m > k:
        part = gu / line
        made = made + (part - u @ (u.mH @ part)) @ vh
    if gv is not None and n > k:
        part = gv.mH / size
        made = made + u @ (part - (part @ vh.mH) @ vh)
    return made


def inner_diagonal(x: Tensor) -> Tensor:
    """The diagonal alone, as a matrix."""
    return x.diagonal(0, -2, -1).diag_embed()


def _identity(s: Tensor) -> Tensor:
    return meta.beside(np.eye(s.shape[-1], dtype=s._dtype.np), s._dtype, s)


def _decomposed(a: Array, full: bool) -> tuple[Array, Array, Array]:
    _check_finite(a)
    u, s, vh = np.linalg.svd(a, full_matrices=full)
    return u, s, vh


def _check_finite(a: Array) -> None:
    if not np.isfinite(a).all():
        raise LinAlgError(
            "linalg.svd: The algorithm failed to converge because the input matrix contained "
            "non-finite values."
        )


@hidden(
    "_linalg_svd",
    rule=Rule("LinalgSvdBackward0", input=_svd_back),
    batch=batching.dims.MATRICES,
    meta=shapes.svd,
)
def _svd(input: Tensor, full_matrices: bool) -> Any:
    u, s, vh = _decomposed(input._skimp_array(), full_matrices)
    d = input._dtype
    return columns(u, d), rows(s, d.to_real()), columns(vh, d)


def _check_svd(name: str, A: Tensor, driver: Any) -> None:
    check_matrices(name, A)
    check_number(name, A, "linalg_svd_cpu")
    if driver is not None:
        raise RuntimeError(
            f"{name}: keyword argument `driver=` is only supported on CUDA inputs "
            "with cuSOLVER backend."
        )


@linear("svd", autocast="float32")
def svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None) -> Any:
    """U, S and Vh with A = U diag(S) Vh, singular values descending."""
    _check_svd("linalg.svd", A, driver)
    return return_types.linalg_svd(_svd(A, full_matrices))


@linear("svdvals", out="own layout", autocast="float32", batch=batching.dims.MATRICES)
def svdvals(A: Tensor, *, driver: Any = None) -> Tensor:
    """The singular values, descending."""
    _check_svd("linalg.svdvals", A, driver)
    if recorded(A) or A._hollow:
        return _svd(A, False)[1]  # type: ignore[no-any-return]
    a = A._skimp_array()
    _check_finite(a)
    return rows(np.linalg.svd(a, compute_uv=False), A._dtype.to_real())


@general("svd", out=True, autocast="float32")
def torch_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """U, S and V with A = U diag(S) V^H; U and V are zeros without `compute_uv`."""
    check_matrices("linalg.svd", input)
    if compute_uv:
        u, s, vh = svd(input, not some)
        return return_types.svd(u, s, vh.mH)
    m, n = input.shape[-2:]
    batch = tuple(input.shape[:-2])
    return return_types.svd(
        input.new_zeros((*batch, m, m)), svdvals(input), input.new_zeros((*batch, n, n))
    )


# -- eigenvalues ----------------------------------------------------------------------------------


def _eigh_back(g0: Any, g1: Any, result0: Tensor, result1: Tensor) -> Tensor:
    values, v = result0, result1
    g0 = values * 0 if g0 is None else g0
    inner = g0.to(v._dtype).diag_embed()
    if g1 is not None:
        turned = (v.mH @ g1) / _gaps(values)
        turned = turned - inner_diagonal(turned)
        inner = inner + (turned + turned.mH) / 2
    return v @ inner @ v.mH  # type: ignore[no-any-return]


Half = Literal["L", "U"]  # of a Hermitian matrix


@hidden(
    "_linalg_eigh",
    rule=Rule("LinalgEighBackward0", input=_eigh_back),
    batch=batching.dims.MATRICES,
    meta=shapes.eigh,
)
def _eigh(input: Tensor, UPLO: Half) -> Any:
    try:
        values, v = np.linalg.eigh(input._skimp_array(), UPLO)
    except np.linalg.LinAlgError as e:
        raise _unconverged() from e
    return rows(values, input._dtype.to_real()), columns(v, input._dtype)


def _unconverged() -> Exception:
    return LinAlgError(
        "linalg.eigh: The algorithm failed to converge because the input matrix is "
        "ill-conditioned or has too many repeated eigenvalues"
    )


def _checked_half(name: str, A: Tensor, UPLO: str) -> Half:
    check_square(name, A)
    if str(UPLO).upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    if A._dtype not in dtypes.FLOATING_AND_COMPLEX:
        raise no_kernel("linalg_eigh_cpu", A._dtype)
    return "U" if str(UPLO).upper() == "U" else "L"


@linear("eigh", autocast="float32")
def eigh(input: Tensor, UPLO: str = "L") -> Any:
    """Eigenvalues (ascending) and orthonormal eigenvectors of Hermitian matrices, of which one
    triangle is read.
    """
    half = _checked_half("linalg.eigh", input, UPLO)
    return return_types.linalg_eigh(_eigh(input, half))


@linear("eigvalsh", out="own layout", autocast="float32", batch=batching.dims.MATRICES)
def eigvalsh(input: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending."""
    half = _checked_half("linalg.eigvalsh", input, UPLO)
    if recorded(input) or input._hollow:
        return _eigh(input, half)[0]  # type: ignore[no-any-return]
    try:
        values = np.linalg.eigvalsh(input._skimp_array(), half)
    except np.linalg.LinAlgError as e:
        raise _unconverged() from e
    return rows(values, input._dtype.to_real())


def _eig_back(g0: Any, g1: Any, input: Tensor, result0: Tensor, result1: Tensor) -> Tensor:
    """Boeddeker et al. (2017), with eigenvectors of norm 1."""
    values, v = result0, result1
    g0 = values * 0 if g0 is None else g0
    inner = g0.diag_embed()
    if g1 is not None:
        inside = v.mH @ g1
        real = inside.diagonal(0, -2, -1).real
        inside = inside - (v.mH @ v) * real.unsqueeze(-2)
        turned = inside / _gaps(values).conj()
        inner = inner + turned - inner_diagonal(turned)
    made = solve(v.mH, inner @ v.mH)
    return made if input._dtype.is_complex else made.real


@hidden(
    "_linalg_eig",
    rule=Rule("LinalgEigBackward0", input=_eig_back),
    batch=batching.dims.MATRICES,
    meta=shapes.eig,
)
def _eig(input: Tensor) -> Any:
    values, v = np.linalg.eig(input._skimp_array())
    d = input._dtype.to_complex()
    return rows(values.astype(d.np), d), columns(v.astype(d.np), d)


def _check_eig(name: str, A: Tensor) -> None:
    check_square(name, A)
    if A._dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"Unknown Complex ScalarType for {promotion.scalar_type_name(A._dtype)}")
    check_number(name, A, "linalg_eig_out_cpu")
    if not A._hollow and not np.isfinite(A.detach()._skimp_array()).all():
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs.")


@linear("eig", autocast="float32", batch=batching.dims.MATRICES)
def eig(input: Tensor) -> Any:
    """Eigenvalues and eigenvectors of square matrices, complex, in no order."""
    _check_eig("linalg.eig", input)
    return return_types.linalg_eig(_eig(input))


@linear("eigvals", autocast="float32", batch=batching.dims.MATRICES)
def eigvals(input: Tensor) -> Tensor:
    """The eigenvalues of square matrices, complex, in no order."""
    _check_eig("linalg.eigvals", input)
    if recorded(input) or input._hollow:
        return _eig(input)[0]  # type: ignore[no-any-return]
    d = input._dtype.to_complex()
    return rows(np.linalg.eigvals(input._skimp_array()).astype(d.np), d)


# -- ranks and pseudo-inverses --------------------------------------------------------------------


def _bounds(name: str, A: Tensor, s: Array, atol: Any, rtol: Any) -> Array:
    """Below what a singular value counts as 0, for each matrix."""
    real = A._dtype.to_real().np
    tolerances = []
    for title, t in (("atol", atol), ("rtol", rtol)):
        if isinstance(t, Tensor):
            if t._dtype.is_complex:
                raise RuntimeError(
                    f"{name}: {title} tensor of complex type is not supported. Got "
                    f"{promotion.scalar_type_name(t._dtype)}"
                )
            t = t.detach()._skimp_array()
        tolerances.append(None if t is None else np.asarray(t, real))
    a, r = tolerances
    if r is None:
        default = np.asarray(np.finfo(real).eps * max(A.shape[-2:]), real)
        r = default if a is None else bare.where(a > 0, np.asarray(0, real), default)
    a = np.asarray(0, real) if a is None else a
    biggest = s.max(-1, initial=0) if s.shape[-1] else np.zeros(s.shape[:-1], real)
    found: Array = np.maximum(a, r * biggest)
    return found


def _sizes(A: Tensor, hermitian: bool) -> Array:
    plain = A.detach()
    found: Array = (eigvalsh(plain).abs() if hermitian else svdvals(plain))._skimp_array()
    return found


@linear("matrix_rank", autocast="float32")
def matrix_rank(
    input: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """How many singular values are larger than max(atol, rtol * the largest)."""
    check_matrices("torch.linalg.matrix_rank", input)
    if tol is None and input._dtype in dtypes.HALVES:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if tol is not None:
        atol, rtol = tol, 0.0
    if hermitian:
        check_square("torch.linalg.matrix_rank", input)
    if input._hollow:
        return meta.empty(input.shape[:-2], dtypes.int64)
    s = _sizes(input, hermitian)
    if not input.numel():  # whatever the tolerances' shape
        return fresh(np.zeros(tuple(input.shape[:-2]), np.int64), dtypes.int64)
    count = (s > _bounds("torch.linalg.matrix_rank", input, s, atol, rtol)[..., None]).sum(-1)
    return fresh(np.asarray(count, np.int64), dtypes.int64)


def _pinv_back(g: Tensor, input: Tensor, result: Tensor) -> Tensor:
    """Golub and Pereyra, The differentiation of pseudo-inverses (1973)."""
    p = result
    first = p.mH @ g @ p.mH
    right = g.mH @ p @ p.mH
    left = p.mH @ (p @ g.mH)
    return right - input @ (p @ right) + left - (left @ p) @ input - first


@hidden(
    "_linalg_pinv",
    rule=Rule("LinalgPinvBackward0", input=_pinv_back),
    batch=batching.dims.pseudo_inverse,
    meta=shapes.pinv,
)
def _pinv(input: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    a = input._skimp_array()
    if hermitian:
        values, u = np.linalg.eigh(a)
        size, v = np.abs(values), u
    else:
        u, values, vh = _decomposed(a, False)
        size, v = values, np.conj(np.swapaxes(vh, -1, -2))
    kept = size > _bounds("linalg.pinv", input, size, atol, rtol)[..., None]
    scale = bare.where(kept, 1 / bare.where(kept, values, 1), 0).astype(values.dtype)
    return rows((v * scale[..., None, :]) @ np.conj(np.swapaxes(u, -1, -2)), input._dtype)


@linear("pinv")
@shown("LinalgPinvBackward0", "input")
def pinv(
    input: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The Moore-Penrose inverse; singular values up to max(atol, rtol * the largest) count as 0."""
    if input.ndim < 2 or input._dtype not in dtypes.FLOATING_AND_COMPLEX:
        title = promotion.scalar_type_name(input._dtype)
        raise RuntimeError(
            f"linalg.pinv({title}{{{list(input.shape)}}}): expected a tensor with 2 or more "
            "dimensions of float, double, cfloat or cdouble types"
        )
    if hermitian:
        check_square("linalg.pinv", input)
    if rcond is not None:
        atol, rtol = 0.0, rcond
    if not input.numel():
        return input.mT.square()  # empty, with a history
    return _pinv(input, atol, rtol, hermitian)


@general(autocast="float32")
@shown("LinalgPinvBackward0", "input")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv` with a tolerance relative to the largest singular value."""
    return pinv(input, rcond)


# -- least squares --------------------------------------------------------------------------------

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@linear("lstsq", autocast="float32", batch=by_samples)
@shown("LinalgLstsqBackward0", "input", "b")
def lstsq(input: Tensor, b: Tensor, rcond: Any = None, *, driver: Any = None) -> Any:
    """The X for which A X is closest to B, the squared distances where A is tall and of full rank,
    A's rank and singular values (where the driver finds them).
    """
    _check_lstsq(input, b)
    how = "gelsy" if driver is None else driver
    if how not in _DRIVERS:
        raise RuntimeError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    vector = b.ndim == input.ndim - 1 or b.ndim == 1
    b = b.unsqueeze(-1) if vector else b
    m, n = input.shape[-2:]
    eps = float(np.finfo(input._dtype.to_real().np).eps) * max(m, n)
    limit = eps if rcond is None else rcond
    found = pinv(input, limit) @ b
    found = found.mT.contiguous().mT  # column-major, as LAPACK's
    none = input.new_empty((0,), dtype=input._dtype.to_real())
    s = _sizes(input, False)
    count = (s > limit * s.max(-1, initial=0)[..., None]).sum(-1)
    rank = fresh(np.asarray(count, np.int64), dtypes.int64)
    residuals = found.reshape(-1)[:0].abs()
    if m > n and how != "gelsy" and (how == "gels" or bool((count == n).all())):
        residuals = (input @ found - b).abs().square().sum(-2)
    values = rows(s, input._dtype.to_real()) if how in ("gelsd", "gelss") else none
    no_rank = fresh(np.empty((0,), np.int64), dtypes.int64)
    return return_types.linalg_lstsq(
        found.squeeze(-1) if vector else found,
        residuals,
        no_rank if how == "gels" else rank,
        values,
    )


def _check_lstsq(A: Tensor, B: Tensor) -> None:
    name = "torch.linalg.lstsq"
    if A.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    gap = A.ndim - B.ndim
    if gap not in (0, 1):
        raise RuntimeError(
            f"{name}: input.dim() must be greater or equal to other.dim() and "
            "(input.dim() - other.dim()) <= 1"
        )
    rows_of = B.shape[-1] if gap else B.shape[-2]
    if A.shape[-2] != rows_of:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({-1 if gap else -2})")
    check_like(name, A, B)
    check_number(name, A, "linalg_lstsq_cpu")


# -- condition numbers ----------------------------------------------------------------------------


@linear("cond", autocast="float32")
def cond(input: Tensor, p: Any = None) -> Tensor:
    """The norm of a matrix times the norm of its inverse (p None or 2: of singular values)."""
    check_matrices("linalg.cond", input)
    check_number("linalg.cond", input)
    if p in (None, 2, -2):
        s = svdvals(input)
        if not s.numel():
            return s.new_zeros(s.shape[:-1])
        first, last = s.select(-1, 0), s.select(-1, -1)
        return last / first if p == -2 else first / last
    norm = OPS["matrix_norm"].forms["matrix_norm"]
    check_square("linalg.cond", input)
    if not input.numel():
        return norm(input, p)  # type: ignore[no-any-return]
    inverse, info = inv_ex(input)
    singular = info > 0
    if p == "nuc":  # singular values of what is not finite are refused
        inverse = inverse.masked_fill(singular.reshape((*info.shape, 1, 1)), 0)
    found: Tensor = norm(input, p) * norm(inverse, p)
    return found.masked_fill(singular, math.inf)


SAYS = """\
Shape: matrices (..., m, n), square ones for eigenvalues; dims before the last two are a batch.
Dtypes: floating point and complex numbers.
Raises: RuntimeError or NotImplementedError for other dtypes and for what is no matrix; LinAlgError
where LAPACK does not converge."""
