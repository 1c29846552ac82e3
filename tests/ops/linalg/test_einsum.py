"""einsum: PyTorch's values, refusals and copies."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import skimp
from tests.ops.linalg.test_matmul import f
from tests.support.samples import agree, numbers, refusals

# -- einsum ---------------------------------------------------------------------------------------

M, J, K = f(3, 4), f(4, 5, seed=1), f(3, 3, seed=2)
B, C = f(2, 3, 4, seed=3), f(2, 4, 5, seed=4)
EINSUMS: list[Any] = [
    ("ij,jk->ik", M, J),
    ("ij,jk", M, J),
    ("ij->ji", M),
    ("ij->", M),
    ("ij->i", M),
    ("ii->i", K),
    ("ii", K),
    ("ji", M),
    ("bij,bjk->bik", B, C),
    ("bij,bjk->kib", B, C),
    ("bij,bjk->ik", B, C),
    ("...ij,...jk->...ik", B, J),
    ("...j,jk", B, J),
    ("i...->...", B),
    ("...->...", B),
    ("b...,b...->b...", B, B[:, :1]),
    ("i,j->ij", M[:, 0], J[0]),
    ("i,i", M[0], M[1]),
    ("ij,ij->ij", M, M),
    ("ij,kj->k", M, K[:, :1].expand(3, 4)),
    ("ij,jk,kl->il", M, J, f(5, 2)),
    ("ab,bc,cd,da->", K, K, K, K),
    ("bij,jk,bkl->bil", B, J, f(2, 5, 2)),
    ("aab,b->a", f(3, 3, 4), f(4)),
    ("Ab,bA->A", M, M.t()),
    (" i j , j k -> i k ", M, J),
    ("ij,jk->ik", M, f(1, 5)),
    ("ij,ij->", M, f(1, 4)),
    ("iji->j", f(3, 4, 3)),
    ("i,->i", f(3), torch.tensor(2.0)),
    ("...,...", M, f(4)),
]
REFUSED_EINSUMS: dict[type[Exception], list[Any]] = {
    RuntimeError: [
        ("ij,jk->ik", M, J.double()),
        ("ij,jk", M, M),
        ("ij", M, M),
        ("ij,ij", M),
        ("ij->iij", M),
        ("ij->k", M),
        ("i1->i", M),
        ("ijk", M),
        ("i", M),
        ("...i.->i", M),
        ("ij->i...j...", M),
        ("ii", M),
        ("i.j", M),
        ("...ijk", M),
    ]
}


@pytest.mark.parametrize("args", EINSUMS)
def test_einsum(args: Any) -> None:
    agree(lambda t, *a: t.einsum(*a), *args, tolerance=1e-5)
    agree(lambda t, equation, *a: t.einsum(equation, list(a)), *args, tolerance=1e-5)


@pytest.mark.parametrize(("error", "args"), refusals(REFUSED_EINSUMS))
def test_einsum_refuses(error: Any, args: Any) -> None:
    agree(lambda t, *a: t.einsum(*a), *args, refused=error)
    agree(lambda t, equation, *a: t.einsum(equation, list(a)), *args, refused=error)


def test_einsum_with_lists_of_labels() -> None:
    agree(lambda t, x, y: t.einsum(x, [0, 1], y, [1, 2], [0, 2]), M, J)
    agree(lambda t, x, y: t.einsum(x, [0, 1], y, [1, 2]), M, J)
    agree(lambda t, x, y: t.einsum(x, [..., 0, 1], y, [1, 2], [..., 0, 2]), B, J)
    agree(lambda t, x: t.einsum(x, [0, 60]), M, message=8, refused=ValueError)
    agree(lambda t: t.einsum("ij"), refused=ValueError)
    agree(lambda t: t.einsum("ij", []), refused=ValueError)


def test_einsum_contracts_the_small_pair_first() -> None:
    """(200 x 2) (2 x 200) (200 x 1): never the 200 x 200 in between."""
    a, b, c = skimp.rand(2000, 2), skimp.rand(2, 2000), skimp.rand(2000, 1)
    skimp.memory.memory_allocated()
    skimp.memory.reset_peak_memory_stats()
    before = skimp.memory.memory_allocated()
    made = skimp.einsum("ij,jk,kl->il", a, b, c)
    assert skimp.memory.max_memory_allocated() - before < 10**5
    np.testing.assert_allclose(made.numpy(), a.numpy() @ (b.numpy() @ c.numpy()), rtol=1e-4)


def test_einsum_of_permuted_operands_copies_nothing() -> None:
    x, y = skimp.rand(8, 16, 32), skimp.rand(8, 24, 32)
    with skimp.memory.no_copies():
        made = skimp.einsum("bij,bkj->bik", x, y)
        skimp.einsum("bij,kj->bik", x, y[0])
    np.testing.assert_allclose(made.numpy(), x.numpy() @ y.numpy().swapaxes(1, 2), rtol=1e-5)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("equation", ["abcd,ebcd->ae", "abcd,efcd->abef", "abcd,ebcf->dafe"])
def test_einsum_merges_dimensions_in_the_order_of_memory(
    order: tuple[int, ...], equation: str
) -> None:
    """Of operands that are larger than the result; as tangent kernels contract Jacobians."""
    stored = numbers((4, 4, 4, 4), "float32", 0), numbers((4, 4, 4, 4), "float32", 1)
    agree(
        lambda t, x, y: t.einsum(equation, x.permute(order), y.permute(order)),
        *stored,
        tolerance=1e-5,
    )


def test_einsum_of_a_permuted_jacobian_takes_the_memory_of_the_kernel() -> None:
    jacobian = skimp.rand(8, 4, 4096).transpose(0, 1)
    skimp.memory.memory_allocated()
    skimp.memory.reset_peak_memory_stats()
    before = skimp.memory.memory_allocated()
    kernel = skimp.einsum("naf,mbf->nmab", jacobian, jacobian)
    assert skimp.memory.max_memory_allocated() - before <= 3 * kernel.nbytes
    assert skimp.memory.memory_allocated() - before == kernel.nbytes
    rows = jacobian.numpy().reshape(32, 4096)
    wanted = (rows @ rows.T).reshape(4, 8, 4, 8).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(kernel.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("equation", ["ij->ij", "ij", "...", "ba->ba"])
def test_einsum_that_does_nothing_makes_a_view(equation: str) -> None:
    for t in (torch, skimp):
        x = t.arange(6.0).reshape(2, 3).clone()
        made = t.einsum(equation, x)
        assert made is not x
        assert made._base is x
        made.requires_grad_()
        assert not x.requires_grad
        listed = t.einsum(x, [0, 1], [0, 1])
        assert listed is not x
        assert listed._base is x


def test_an_equation_is_read_for_each_shapes_and_refused_each_time() -> None:
    for t in (torch, skimp):
        square, wide = t.arange(9.0).reshape(3, 3), t.arange(6.0).reshape(2, 3)
        for _ in range(2):
            assert t.einsum("ii->i", square).tolist() == [0, 4, 8]
            assert t.einsum("bi,bi->b", wide, wide).tolist() == [5, 50]
            assert t.einsum("bi,bi->b", wide[:, :1], wide).tolist() == [0, 36]
            with pytest.raises(RuntimeError, match="repeated for operand 0"):
                t.einsum("ii->i", wide)
            with pytest.raises(RuntimeError, match="does not broadcast"):
                t.einsum("ij,jk->ik", wide, wide)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ijk,jl->ilk", [(1, 4, 5), (4, 3)]),
        ("bi,ij,bj->b", [(5, 6), (6, 7), (5, 7)]),
        ("ai,bj,ab->ij", [(2, 1), (1, 3), (2, 1)]),
        ("nhwpq->nphw", [(2, 1, 3, 2, 4)]),
        ("ij,kj->i", [(2, 3), (4, 3)]),
        ("aab,bc->c", [(2, 2, 1), (3, 4)]),
        ("abc,c->a", [(2, 1, 3), (3,)]),
        ("ab,bc->ac", [(2, 0), (0, 3)]),
    ],
)
def test_the_steps_follow_from_shapes(equation: str, shapes: list[tuple[int, ...]]) -> None:
    agree(
        lambda lib, *ts: lib.einsum(equation, *ts), *[f(*shape) for shape in shapes], tolerance=1e-5
    )


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Two operands that lie in any order of dims, and a result."""
    terms = [draw(st.permutations("abcde"))[: draw(st.integers(1, 4))] for _ in range(2)]
    used = sorted(set(terms[0] + terms[1]))
    out = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    operands = []
    for term in terms:
        order = draw(st.permutations(range(len(term))))
        stored = f(*["abcde".index(term[d]) + 2 for d in order])
        operands.append(stored.permute(*np.argsort(order).tolist()))
    return ",".join(map("".join, terms)) + "->" + "".join(out), operands


@given(equations())
def test_einsum_lies_in_memory_as_pytorchs(case: tuple[str, list[Any]]) -> None:
    equation, operands = case
    agree(lambda t, *a: t.einsum(equation, *a), *operands, tolerance=1e-4)
