"""Factors that LAPACK packs (ldl, geqrf, lu), products with them, and factors of low rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import lapack
from tests.support.samples import agree, same_gradients, twin

DTYPES = [torch.float64, torch.complex128]


def symmetric(n: int, dtype: Any, hermitian: bool, diagonal: float) -> torch.Tensor:
    """With a small diagonal the pivots are blocks of two."""
    a = torch.randn(2, n, n, dtype=dtype, generator=torch.Generator().manual_seed(n))
    a = a + (a.mH if hermitian else a.mT)
    return a * (1 - torch.eye(n) * (1 - diagonal))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("diagonal", [1.0, 0.01])
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ldl_is_lapacks(dtype: Any, hermitian: bool, diagonal: float, n: int) -> None:
    a = symmetric(n, dtype, hermitian, diagonal)
    agree(lambda lib, a: lib.linalg.ldl_factor_ex(a, hermitian=hermitian), a, tolerance=1e-8)
    ld, pivots = torch.linalg.ldl_factor(a, hermitian=hermitian)
    b = torch.randn(2, n, 3, dtype=dtype)
    agree(
        lambda lib, ld, p, b: lib.linalg.ldl_solve(ld, p, b, hermitian=hermitian),
        ld, pivots, b, tolerance=1e-8,
    )  # fmt: skip


def test_ldl_refuses() -> None:
    a = torch.zeros(3, 3)
    agree(lambda lib, a: lib.linalg.ldl_factor_ex(a), a)
    for f in (
        lambda lib, a: lib.linalg.ldl_factor(a[:2]),
        lambda lib, a: lib.linalg.ldl_factor(a.long()),
        lambda lib, a: lib.linalg.ldl_solve(a, a[0].int(), a[:2]),
    ):
        agree(f, a, message=20, refused=RuntimeError)
    with pytest.raises(RuntimeError, match=r"ldl_factor.*zero"):
        skimp.linalg.ldl_factor(twin(a))


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (0, 3), (3, 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_geqrf_and_ormqr(dtype: Any, shape: Any) -> None:
    a = torch.randn(shape, dtype=dtype)
    agree(lambda lib, a: lib.geqrf(a), a, tolerance=1e-10)
    if 0 in shape:
        return
    packed, tau = torch.geqrf(a)
    other = torch.randn(*shape[:-2], shape[-2], 2, dtype=dtype)
    for left in (True, False):
        for transpose in (True, False):
            agree(
                lambda lib, a, t, o, s=left, c=transpose: lib.ormqr(a, t, o, s, c),
                packed,
                tau,
                other if left else other.mT.contiguous(),
                tolerance=1e-10,
            )
    if dtype is torch.float64:
        same_gradients(lambda lib, a, t, o: lib.ormqr(a, t, o), packed, tau, other, tolerance=1e-7)


def test_ormqr_refuses() -> None:
    e = torch.eye(3)
    for f in (
        lambda lib, e: lib.ormqr(e[0], e[0], e),
        lambda lib, e: lib.ormqr(e, e[0], e[0]),
        lambda lib, e: lib.ormqr(e, e, e),
        lambda lib, e: lib.ormqr(e[:2], e[0, :2], e),
        lambda lib, e: lib.ormqr(e, e[0], e.double()),
        lambda lib, e: lib.geqrf(e[0]),
    ):
        agree(f, e, refused=RuntimeError, message=12)
    for f in (
        lambda lib, e: lib.ormqr(e.long(), e[0].long(), e.long()),
        lambda lib, e: lib.geqrf(e.long()),
    ):
        agree(f, e, refused=NotImplementedError, message=12)


def test_lu() -> None:
    a = torch.randn(2, 4, 3, dtype=torch.float64)
    agree(lambda lib, a: lib.lu(a), a, tolerance=1e-10)
    agree(lambda lib, a: lib.lu(a, get_infos=True), a, tolerance=1e-10)
    agree(lambda lib, a: lib.lu(a, pivot=False), a, refused=RuntimeError)
    agree(lambda lib, a: lib.lu(a), torch.ones(2, 2))  # a zero on U's diagonal is no error
    out = skimp.empty(0, dtype=skimp.float64), skimp.empty(0, dtype=skimp.int32)
    assert skimp.lu(twin(a), out=out) is out
    np.testing.assert_allclose(out[0].numpy(), torch.lu(a)[0].numpy(), atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (2, 5, 5)])
def test_low_rank_gives_the_matrix_back(shape: Any) -> None:
    """The numbers drawn are torch's: singular values agree closely, vectors up to their sign."""
    a = torch.randn(*shape[:-1], 2, dtype=torch.float64) @ torch.randn(
        *shape[:-2], 2, shape[-1], dtype=torch.float64
    )
    for name in ("svd_lowrank", "pca_lowrank"):
        found = []
        for lib, t in ((skimp, twin(a)), (torch, a)):
            lib.manual_seed(3)
            u, s, v = getattr(lib, name)(t, q=3)
            found.append((s.numpy(), ((u * s.unsqueeze(-2)) @ v.mT).numpy()))
        np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-7)
        np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-7)
    shift = twin(torch.ones(shape[-1], dtype=torch.float64))
    u, s, v = skimp.svd_lowrank(twin(a), q=3, M=shift)
    np.testing.assert_allclose(((u * s.unsqueeze(-2)) @ v.mT).numpy(), a.numpy() - 1, atol=1e-7)


@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (4, 3), (2, 4, 4), (30, 8), (8, 30)])
@pytest.mark.parametrize("name", ["svd_lowrank", "pca_lowrank"])
def test_low_rank_differs_by_signs_of_columns_only(name: str, shape: Any) -> None:
    """Same draws and bases; MKL's and LAPACK's singular vectors of wide matrices differ in sign."""
    a = torch.rand(shape, dtype=torch.float64) * 9
    found = []
    for lib, t in ((skimp, twin(a)), (torch, a)):
        lib.manual_seed(42)
        u, s, v = getattr(lib, name)(t, q=2)
        found.append((u.numpy(), s.numpy(), v.numpy(), lib.rand(1).item()))
    (u, s, v, after), (u0, s0, v0, after0) = found
    assert after == after0
    np.testing.assert_allclose(s, s0, rtol=1e-10)
    sign = np.sign((u * u0).sum(-2, keepdims=True))
    np.testing.assert_allclose(u * sign, u0, atol=1e-8)
    np.testing.assert_allclose(v * sign, v0, atol=1e-8)


def test_low_rank_refuses() -> None:
    x = torch.ones(3, 4)
    for f in (lambda lib, x: lib.pca_lowrank(x, q=9), lambda lib, x: lib.pca_lowrank(x, niter=-1)):
        agree(f, x, message=9, refused=ValueError)


def test_results_are_column_major_as_lapacks() -> None:
    a = torch.randn(2, 4, 4, dtype=torch.float64) + 4 * torch.eye(4)
    for f in (
        lambda lib, a: lib.linalg.solve(a, a[..., 0]),
        lambda lib, a: lib.linalg.lu_solve(*lib.linalg.lu_factor(a), a[..., :3], adjoint=True),
        lambda lib, a: lib.triangular_solve(a[..., :2], a),
        lambda lib, a: lib.cholesky_inverse(a),
        lambda lib, a: lib.linalg.lstsq(a, a[..., :3]).solution,
    ):
        agree(f, a, tolerance=1e-8)


@pytest.mark.parametrize("bad", [0, 3, -5])
def test_pivots_that_are_no_rows_are_refused(bad: int) -> None:
    factors, pivots = torch.linalg.lu_factor(torch.eye(2) + torch.ones(3, 2, 2))
    pivots[1, 0] = bad
    words = {"message": 70, "refused": RuntimeError}
    agree(lambda lib, f, p: lib.linalg.lu_solve(f, p, lib.ones(3, 2, 2)), factors, pivots, **words)
    agree(lambda lib, f, p: lib.lu_unpack(f, p), factors, pivots, **words)


@pytest.mark.parametrize("shape", [(2,), (1,), (3,), (), (1, 2), (3, 1), (3, 3)])
def test_pivots_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    factors, _ = torch.linalg.lu_factor(torch.eye(2) + torch.ones(3, 2, 2))
    pivots = torch.ones(shape, dtype=torch.int32)
    for left in (True, False):
        agree(
            lambda lib, f, p, w=left: lib.linalg.lu_solve(f, p, lib.ones(3, 2, 2), left=w),
            factors, pivots, message=40, refused=RuntimeError if shape else IndexError,
        )  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_lu_by_lapacks_names_and_without(
    named: bool, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not named:
        monkeypatch.setattr(lapack, "_named", lambda *_: None)
    for shape, columns in (((4, 4), (4, 2)), ((2, 3, 5, 5), (3, 5, 1)), ((40, 40), (2, 40, 3))):
        a, b = torch.randn(shape, dtype=dtype), torch.randn(columns, dtype=dtype)
        agree(lambda lib, a: lib.linalg.lu_factor(a), a, tolerance=1e-8)
        lu, pivots = torch.linalg.lu_factor(a)
        for adjoint in (False, True):
            agree(
                lambda lib, lu, p, b, w=adjoint: lib.linalg.lu_solve(lu, p, b, adjoint=w),
                lu, pivots, b, tolerance=1e-6,
            )  # fmt: skip
    for shape in ((5, 1), (2, 3, 5), (1, 1)):
        agree(
            lambda lib, a: lib.linalg.lu_factor_ex(a),
            torch.randn(shape, dtype=dtype),
            tolerance=1e-9,
        )
    spoilt = torch.tensor([[0.0, 0], [0, 1]], dtype=dtype)
    agree(lambda lib, a: lib.linalg.lu_factor_ex(a), spoilt)
    spoilt[0, 0] = torch.nan
    agree(lambda lib, a: lib.linalg.lu_factor_ex(a), spoilt)
