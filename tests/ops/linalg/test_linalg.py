"""Linear algebra against torch's: values or the equations they solve, gradients, refusals."""

from __future__ import annotations

import contextlib
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import lapack
from skimp._ops.linalg import small as small_linalg
from skimp.config import using
from tests.support.samples import agree, refusals, same

DTYPES = ("float32", "float64", "complex64", "complex128")
LIBS = (skimp, torch)


def numbers(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    a = draw.normal(size=shape)
    if dtype.startswith("complex"):
        a = a + 1j * draw.normal(size=shape)
    return a.astype(dtype)


def square(dtype: str = "float64", n: int = 4, batch: tuple[int, ...] = (2,)) -> Any:
    return numbers((*batch, n, n), dtype) + (2 * np.eye(n)).astype(dtype)


def hermitian(dtype: str = "float64", n: int = 4, batch: tuple[int, ...] = (2,)) -> Any:
    a = numbers((*batch, n, n), dtype)
    return a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(n).astype(dtype)


def H(t: Any) -> Any:
    return t.mH


# Each gives tensors in which the freedom of a factorization (signs, phases, order) is gone.
CALLS: dict[str, tuple[Any, Any]] = {
    "inv": (square, lambda lib, a: lib.linalg.inv(a)),
    "inverse": (square, lambda lib, a: a.inverse()),
    "inv_ex": (square, lambda lib, a: lib.linalg.inv_ex(a).inverse),
    "solve": (square, lambda lib, a: lib.linalg.solve(a, a[..., :2])),
    "solve right": (square, lambda lib, a: lib.linalg.solve(a, a[..., :2, :], left=False)),
    "solve vector": (square, lambda lib, a: lib.linalg.solve(a, a[..., 0])),
    "triangular": (square, lambda lib, a: lib.linalg.solve_triangular(a, a[..., :2], upper=True)),
    "triangular right unit": (
        square,
        lambda lib, a: lib.linalg.solve_triangular(
            a, a[..., :2, :], upper=False, left=False, unitriangular=True
        ),
    ),
    "triangular_solve": (
        square,
        lambda lib, a: lib.triangular_solve(a[..., :2], a, transpose=True).solution,
    ),
    "det": (square, lambda lib, a: lib.linalg.det(a)),
    "slogdet": (square, lambda lib, a: lib.linalg.slogdet(a).logabsdet),
    "slogdet sign": (square, lambda lib, a: lib.linalg.slogdet(a).sign),
    "qr": (square, lambda lib, a: H(lib.linalg.qr(a).R) @ lib.linalg.qr(a).R),
    "qr tall": (square, lambda lib, a: lib.linalg.qr(a[..., :2]).R.abs()),
    "qr wide": (square, lambda lib, a: lib.linalg.qr(a[..., :2, :]).R.abs()),
    "cholesky": (hermitian, lambda lib, a: lib.linalg.cholesky(a)),
    "cholesky upper": (hermitian, lambda lib, a: lib.cholesky(a, upper=True)),
    "cholesky_inverse": (hermitian, lambda lib, a: lib.cholesky_inverse(a)),
    "svdvals": (square, lambda lib, a: lib.linalg.svdvals(a[..., :3])),
    "svd u": (square, lambda lib, a: lib.linalg.svd(a[..., :3], False).U.abs()),
    "svd v": (square, lambda lib, a: lib.linalg.svd(a[..., :3, :], False).Vh.abs()),
    "svd whole": (
        square,
        lambda lib, a: (lambda u, s, v: (u[..., :3] * s.sin().unsqueeze(-2)) @ v)(
            *lib.linalg.svd(a[..., :3])
        ),
    ),
    "torch.svd": (
        square,
        lambda lib, a: (lambda u, s, v: (u * s.cos().unsqueeze(-2)) @ H(v))(
            *lib.svd(a[..., :3, :])
        ),
    ),
    "eigvalsh": (hermitian, lambda lib, a: lib.linalg.eigvalsh(a)),
    "eigh": (
        hermitian,
        lambda lib, a: (lambda s, v: (v * s.sin().unsqueeze(-2)) @ H(v))(*lib.linalg.eigh(a, "U")),
    ),
    "eigvals": (square, lambda lib, a: lib.linalg.eigvals(a).pow(3).sum(-1)),
    "eig": (square, lambda lib, a: lib.linalg.eig(a).eigenvectors.abs().sum()),
    "pinv": (square, lambda lib, a: lib.linalg.pinv(a[..., :3])),
    "pinv wide": (square, lambda lib, a: lib.pinverse(a[..., :2, :])),
    "pinv hermitian": (hermitian, lambda lib, a: lib.linalg.pinv(a, hermitian=True)),
    "matrix_power": (square, lambda lib, a: lib.linalg.matrix_power(a, 5)),
    "matrix_power negative": (square, lambda lib, a: a.matrix_power(-2)),
    "matrix_exp": (square, lambda lib, a: lib.matrix_exp(a)),
    "lu": (square, lambda lib, a: lib.linalg.lu(a).L),
    "lu tall": (square, lambda lib, a: lib.linalg.lu(a[..., :2]).L),
    "lu wide": (square, lambda lib, a: lib.linalg.lu(a[..., :3, :]).U),
    "lu_factor": (square, lambda lib, a: lib.linalg.lu_factor(a).LU),
    "lu_solve": (
        square,
        lambda lib, a: lib.linalg.lu_solve(*lib.linalg.lu_factor(a), a[..., :2], adjoint=True),
    ),
    "lu_unpack": (square, lambda lib, a: lib.lu_unpack(*lib.linalg.lu_factor(a)).U),
    "lstsq": (square, lambda lib, a: lib.linalg.lstsq(a[..., :2], a).solution),
    "tensorinv": (square, lambda lib, a: lib.linalg.tensorinv(a[0].reshape(2, 2, 4), ind=2)),
    "tensorsolve": (
        square,
        lambda lib, a: lib.linalg.tensorsolve(a[0].reshape(2, 2, 2, 2), a[0, :2, :2]),
    ),
    "householder_product": (
        square,
        lambda lib, a: lib.linalg.householder_product(a[..., :3] / 2, a[..., :2, 0] / 3),
    ),
    "vecdot": (square, lambda lib, a: lib.linalg.vecdot(a, a.mT.sin(), dim=0)),
    "diagonal": (square, lambda lib, a: lib.linalg.diagonal(a, offset=1)),
    "cond": (square, lambda lib, a: lib.linalg.cond(a)),
    "cond fro": (square, lambda lib, a: lib.linalg.cond(a, "fro")),
    "norm nuc": (square, lambda lib, a: lib.norm(a[0], p="nuc")),
    "norm": (square, lambda lib, a: lib.linalg.norm(a)),
    "norm 2": (square, lambda lib, a: lib.linalg.norm(a, 2, dim=(0, 2), keepdim=True)),
    "norm vector": (square, lambda lib, a: lib.linalg.norm(a, 3, dim=-1)),
    **{
        f"matrix_norm {ord}": (square, lambda lib, a, ord=ord: lib.linalg.matrix_norm(a, ord))
        for ord in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))
    },
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch: deprecated names
@pytest.mark.parametrize("name", CALLS)
def test_values(name: str) -> None:
    make, call = CALLS[name]
    for dtype in DTYPES:
        far = 2e-3 if dtype in ("float32", "complex64") else 1e-9
        agree(call, torch.tensor(make(dtype)), tolerance=far, strides=False)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch: deprecated names
@pytest.mark.parametrize("name", sorted(set(CALLS) - {"slogdet sign", "cond fro"}))
def test_first_and_second_derivatives(name: str) -> None:
    make, call = CALLS[name]
    for dtype in ("float64", "complex128"):
        found = []
        for lib in LIBS:
            x = lib.tensor(make(dtype)).requires_grad_()
            made = call(lib, x)
            weights = lib.arange(1, made.numel() + 1, dtype=lib.float64).reshape(made.shape)
            loss = (made.abs() * weights).sin().sum()
            (g,) = lib.autograd.grad(loss, x, create_graph=True)
            second = ()
            if g.requires_grad:
                second = lib.autograd.grad((g.abs() ** 2).sum(), x, allow_unused=True)
            found.append((g, *second))
        for ours, theirs in zip(*found, strict=True):
            if theirs is None or ours is None:
                assert theirs is None or not theirs.abs().sum()
                continue
            size = max(1.0, float(theirs.detach().abs().max()))
            same(ours / size, theirs / size, 1e-6, strides=False)


def test_layouts_of_results() -> None:
    a = square("float32", 4)
    for call in (
        lambda lib, a: lib.linalg.inv(a),
        lambda lib, a: lib.linalg.qr(a[..., :3]).Q,
        lambda lib, a: lib.linalg.svd(a[..., :3]).Vh,
        lambda lib, a: lib.linalg.eig(a).eigenvectors,
        lambda lib, a: lib.linalg.solve(a, a[..., :2]),
        lambda lib, a: lib.linalg.pinv(a),
    ):
        assert call(skimp, skimp.tensor(a)).stride() == call(torch, torch.tensor(a)).stride()


def test_singular_determinants_have_the_gradients_of_cofactors() -> None:
    """PyTorch answers zeros for the first of these."""
    a = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]])
    for matrix in (a, np.diag([1.0, 2.0, 0.0]), np.zeros((3, 3))):
        x = skimp.tensor(matrix).requires_grad_()
        skimp.linalg.det(x).backward()
        cofactors = [
            [
                (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(matrix, i, 0), j, 1))
                for j in range(3)
            ]
            for i in range(3)
        ]
        np.testing.assert_allclose(x.grad.numpy(), cofactors, atol=1e-9)


@pytest.mark.parametrize("p", [1, -2, "fro", np.inf])
def test_what_is_singular_has_no_finite_condition_and_the_rest_of_a_batch_has(p: Any) -> None:
    both = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 1.0], [0.0, 3.0]]])
    agree(lambda lib, a: lib.linalg.cond(a, p), both, tolerance=1e-6)


def test_conditions_have_gradients_and_zeros_none_that_is_finite() -> None:
    assert skimp.linalg.cond(skimp.zeros(2, 2), "nuc").item() == np.inf
    x = skimp.tensor([[2.0, 1.0], [0.0, 3.0]], dtype=skimp.float64, requires_grad=True)
    assert skimp.autograd.gradcheck(lambda x: skimp.linalg.cond(x, 1), (x,))


def test_ranks() -> None:
    a = np.stack([np.diag([1.0, 1e-3, 0.0]), np.diag([2.0, 1.0, 0.0])])
    for keywords in ({}, {"atol": 0.01}, {"rtol": 0.6}, {"hermitian": True}):
        agree(lambda lib, x: lib.linalg.matrix_rank(x, **keywords), torch.tensor(a))  # noqa: B023


def test_large_elimination_crosses_panels() -> None:
    agree(lambda lib, a: lib.linalg.lu(a), torch.tensor(numbers((70, 75))), tolerance=1e-9)


def test_out() -> None:
    a = square("float32")
    for lib in LIBS:
        q, r = lib.empty(0), lib.empty(0)
        made = lib.linalg.qr(lib.tensor(a), out=(q, r))
        assert made.Q is q
        assert made.R is r
        assert q.shape == (2, 4, 4)


@pytest.mark.parametrize(
    ("refused", "call"),
    refusals(
        {
            RuntimeError: [
                lambda lib: lib.linalg.inv(lib.ones(3)),
                lambda lib: lib.linalg.inv(lib.ones(3, 2)),
                lambda lib: lib.linalg.inv(lib.ones(2, 2, dtype=lib.int64)),
                lambda lib: lib.linalg.inv(lib.ones(2, 2, dtype=lib.float16)),
                lambda lib: lib.linalg.solve(lib.eye(2), lib.ones(3, 2)),
                lambda lib: lib.linalg.solve(lib.eye(2), lib.ones(2, 2, dtype=lib.float64)),
                lambda lib: lib.linalg.qr(lib.eye(2), mode="all"),
                lambda lib: lib.linalg.eig(lib.full((2, 2), float("inf"))),
                lambda lib: lib.linalg.eigh(lib.eye(2), "X"),
                lambda lib: lib.linalg.matrix_norm(lib.eye(2), 3),
                lambda lib: lib.linalg.matrix_norm(lib.eye(2), "inf"),
                lambda lib: lib.linalg.norm(lib.ones(2, 2, 2), 2),
                lambda lib: lib.linalg.lu_factor(lib.zeros(2, 2)),
                lambda lib: lib.linalg.householder_product(lib.ones(2, 3), lib.ones(2)),
                lambda lib: lib.linalg.tensorinv(lib.ones(2, 3), ind=1),
                lambda lib: lib.linalg.norm(lib.ones(4), "fro"),
                lambda lib: lib.linalg.norm(lib.ones(2, 3), "nuc", 0),
                lambda lib: lib.linalg.norm(lib.ones(2, 3, 4), None, (0, 1, 2)),
                lambda lib: lib.linalg.multi_dot([lib.ones(2, 2), lib.ones(2, 2, 2)]),
                lambda lib: lib.linalg.multi_dot([lib.ones(()), lib.ones(2, 2)]),
                lambda lib: lib.linalg.multi_dot([lib.ones(2, 2), lib.ones(2).double()]),
            ],
            torch.linalg.LinAlgError: [
                lambda lib: lib.linalg.inv(lib.zeros(2, 2)),
                lambda lib: lib.linalg.inv(lib.ones(2, 2, 2)),
                lambda lib: lib.linalg.solve(lib.zeros(2, 2), lib.ones(2)),
                lambda lib: lib.linalg.cholesky(-lib.eye(3)),
                lambda lib: lib.linalg.cholesky(lib.stack([lib.eye(2), -lib.eye(2)])),
                lambda lib: lib.linalg.svd(lib.full((2, 2), float("nan"))),
                lambda lib: lib.linalg.eigvalsh(lib.full((3, 3), float("nan"))),
            ],
            NotImplementedError: [lambda lib: lib.linalg.det(lib.ones(2, 2, dtype=lib.float16))],
        }
    ),
)
def test_refusals(refused: type[Exception], call: Any) -> None:
    agree(call, refused=refused)


@pytest.mark.parametrize("name", ["linalg.slogdet", "logdet"])
def test_the_gradient_of_a_singular_matrix_is_no_number_and_no_error(name: str) -> None:
    for lib in (torch, skimp):
        f = lib.linalg.slogdet if name == "linalg.slogdet" else lib.logdet
        x = lib.ones(2, 2, requires_grad=True)
        found = f(x)
        (grad,) = lib.autograd.grad(found[1] if isinstance(found, tuple) else found, x)
        assert not grad.isfinite().any()


@pytest.mark.parametrize("types", [("float64", "float32"), ("float32", "complex64")])
@pytest.mark.parametrize("left", [True, False])
def test_a_triangular_systems_right_side_becomes_the_matrixs_type(
    types: tuple[str, str], left: bool
) -> None:
    def found(lib: Any) -> Any:
        a = lib.tensor([[2.0, 0.0], [1.0, 4.0]], dtype=getattr(lib, types[0]))
        b = lib.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=getattr(lib, types[1])).requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what imaginary parts are dropped
            result = lib.linalg.solve_triangular(a, b, upper=False, left=left)
            result.sum().backward()
        return str(result.dtype)[-7:], result.tolist(), str(b.grad.dtype)[-7:], b.grad.tolist()

    assert found(skimp) == found(torch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated, which is told once
        with pytest.raises(RuntimeError, match="Expected b and A to have the same dtype"):
            skimp.triangular_solve(skimp.ones(2, 1), skimp.eye(2, dtype=skimp.float64))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("batch", [(), (2,)])  # of the triangle's, with the same or more besides
def test_a_triangular_systems_node_and_gradients_lie_as_pytorchs(batch: Any, left: bool) -> None:
    found: list[list[Any]] = [[], []]
    for i, lib in enumerate((torch, skimp)):
        a = lib.tensor(square("float32", 3, batch).tolist(), requires_grad=True)
        b = lib.ones(4, 3, requires_grad=True) if batch else lib.ones(3, 3, requires_grad=True)
        b = b.mT if left else b
        x = lib.linalg.solve_triangular(a, b, upper=True, left=left)
        names = [type(node).__name__ for node, _ in x.grad_fn.next_functions if node]
        found[i] = [x.grad_fn.name(), names[0], x.stride()]
    assert found[1] == found[0]
    assert names[0] == "AccumulateGrad"


SMALL = {
    "inv": lambda a, b: skimp.linalg.inv(a),
    "solve": lambda a, b: skimp.linalg.solve(a, b),
    "solve a vector": lambda a, b: skimp.linalg.solve(a, b[..., 0]),
    "cholesky": lambda a, b: skimp.linalg.cholesky(a @ a.mH + 3 * skimp.eye(3, dtype=a.dtype)),
    "cholesky_solve": lambda a, b: skimp.cholesky_solve(b, a, upper=True),
    "solve_triangular": lambda a, b: skimp.linalg.solve_triangular(
        a, b.mT, upper=False, left=False, unitriangular=True
    ),
    "slogdet": lambda a, b: skimp.linalg.slogdet(a)[1],
    "det": lambda a, b: skimp.linalg.det(a),
    "mv": lambda a, b: skimp.mv(a.reshape(-1, 3), b.reshape(-1)[:3]),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_small_matrices_have_the_bits_of_the_general_way(name: str, dtype: str) -> None:
    found: list[list[bytes]] = []
    for small in (True, False):
        with contextlib.nullcontext() if small else using(small_below=0):
            for batch in ((), (2,)):
                a = skimp.tensor(square(dtype, 3, batch), requires_grad=True)
                b = skimp.tensor(numbers((*batch, 3, 2), dtype), requires_grad=True)
                x: Any = SMALL[name](a, b)
                weighted = (x * x.detach()).sum()
                grads = skimp.autograd.grad(
                    weighted.real if x.is_complex() else weighted, [a, b], allow_unused=True
                )
                seen = [x.detach(), *[g for g in grads if g is not None]]
                found.append([t.contiguous().numpy().tobytes() for t in seen])
    assert found[:2] == found[2:]


def test_patterns_of_large_matrices_do_not_stay() -> None:
    def run(n: int) -> None:
        a = skimp.eye(n, dtype=skimp.float64).requires_grad_()
        found = skimp.linalg.cholesky(a)
        found.sum().backward()
        skimp.linalg.solve_triangular(found.detach(), a.detach(), upper=False)

    run(299)
    files = [module.__file__ or "" for module in (lapack, small_linalg)]
    tracemalloc.start(10)
    try:
        run(300)
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    kept = taken.filter_traces([tracemalloc.Filter(True, f, all_frames=True) for f in files])
    assert sum(one.size for one in kept.traces) < 300 * 300


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize(
    ("value", "dtype"),
    [(float("nan"), "float32"), (float("nan"), "complex128"), (float("inf"), "float64")],
)
def test_a_triangle_that_is_not_finite_is_solved_row_by_row(
    value: float, dtype: str, upper: bool, left: bool
) -> None:
    for batch in ((), (2,)):
        for at in ((0, 0), (2, 1), (1, 2), (1, 1)):
            a = torch.from_numpy(square(dtype, 3, batch))
            a[(..., *at)] = value
            b = torch.from_numpy(square(dtype, 3, batch))
            agree(
                lambda lib, a, b: lib.linalg.solve_triangular(a, b, upper=upper, left=left),
                a, b, tolerance=1e-4,
            )  # fmt: skip


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_gradient_of_a_complex_factor_has_a_complex_diagonal(batch: Any, upper: bool) -> None:
    a, g = hermitian("complex128", 3, batch), numbers((*batch, 3, 3), "complex128", 1)
    found = {}
    for lib in LIBS:
        x = lib.from_numpy(a).requires_grad_()
        y = lib.linalg.cholesky(x, upper=upper)
        (plain,) = lib.autograd.grad(y, x, lib.from_numpy(g), retain_graph=True)
        (first,) = lib.autograd.grad(y, x, lib.from_numpy(g), create_graph=True)
        (second,) = lib.autograd.grad((first * first).sum().abs(), x)
        found[lib] = plain.numpy(), first.detach().numpy(), second.numpy()
    for mine, theirs in zip(found[skimp], found[torch], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)
