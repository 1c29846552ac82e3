"""Singular values of matrices of low rank, from random projections: algorithms 4.4 and 5.1 of
Halko, Martinsson and Tropp (2011).
"""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES, general
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor


def _random(t: Tensor, n: int, q: int) -> Tensor:
    dtype = t._dtype if t._dtype.category >= dtypes.FLOAT else promotion.get_default_dtype()
    return NAMESPACES[""]["randn"](n, q, dtype=dtype)  # type: ignore[no-any-return]


def _times(a: Tensor, b: Tensor, shift: Tensor | None) -> Tensor:
    found = a @ b
    return found if shift is None else found - shift @ b


def _basis(a: Tensor, q: int, niter: int, shift: Tensor | None) -> Tensor:
    """Orthonormal columns that span nearly what `a - shift` reaches."""
    qr = NAMESPACES["linalg"]["qr"]
    found = qr(_times(a, _random(a, a.shape[-1], q), shift))[0]
    back, back_shift = a.mH, None if shift is None else shift.mH
    for _ in range(niter):
        found = qr(_times(back, found, back_shift))[0]
        found = qr(_times(a, found, shift))[0]
    return found  # type: ignore[no-any-return]


@general(method=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V with A - M nearly U diag(S) V^H, of rank q."""
    q = 6 if q is None else q
    rows, columns = A.shape[-2:]
    shift = None if M is None else M.broadcast_to(A.shape)
    wide = rows < columns
    if wide:
        A, shift = A.mH, None if shift is None else shift.mH
    basis = _basis(A, q, 2 if niter is None else niter, shift)
    small = basis.mH @ A
    if shift is not None:
        small = small - basis.mH @ shift
    u, s, vh = NAMESPACES["linalg"]["svd"](small, full_matrices=False)
    left, right = basis.matmul(u), vh.mH
    return (right, s, left) if wide else (left, s, right)


@general(method=False)
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """The principal components of A's rows: `svd_lowrank` of A less the mean of each column."""
    rows, columns = A.shape[-2:]
    most = min(rows, columns)
    if q is None:
        q = min(6, most)
    elif not 0 <= q <= most:
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={most}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if center:
        A = A - A.mean(dim=(-2,), keepdim=True)
    given: dict[str, Any] = {"q": q, "niter": niter}
    return svd_lowrank(A, **given)


SAYS = """\
Shape: a matrix (..., m, n) gives U (..., m, q), S (..., q) and V (..., n, q).
Dtypes: floating point and complex numbers.
Raises: RuntimeError for other dtypes, ValueError for a `q` beyond both sizes.
Memory: three new tensors."""
