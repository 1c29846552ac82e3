"""Distances, chains of products and linear maps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.ops.linalg.test_matmul import LOOSE, f
from tests.support.samples import agree, numbers, same, twin
from tests.support.told import told_anew

# -- distances, chains, maps ----------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p: float) -> None:
    for dtype in ("float32", "float64"):
        x, y = numbers((2, 4, 5), dtype, ties=False), numbers((3, 1, 6, 5), dtype, 1, ties=False)
        agree(lambda t, x, y: t.cdist(x, y, p), x, y, tolerance=LOOSE.get(dtype, 1e-9))
        agree(lambda t, x: t.nn.functional.pdist(x, p), x[0], tolerance=LOOSE.get(dtype, 1e-9))
        agree(lambda t, x: t.cdist(x, x[:, :0], p), x)
        agree(lambda t, x: t.cdist(x, x[:0], p), x, refused=RuntimeError)
        agree(lambda t, x: t.cdist(x[..., :0], x[..., :0], p), x)
    many, rows = (
        numbers((300, 8), "float64", ties=False),
        numbers((40, 8), "float64", 1, ties=False),
    )
    agree(lambda t, x, y: t.cdist(x, y, p), many, rows, tolerance=1e-7)
    agree(lambda t, x: t.pdist(x, p), many, tolerance=1e-9)
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        agree(lambda t, x, y, m=mode: t.cdist(x, y, p, compute_mode=m), rows, many, tolerance=1e-7)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, float("inf")])
def test_gradients_of_distances(p: float) -> None:
    for library in (torch, skimp):
        assert (
            library.cdist(
                library.ones(2, 2, requires_grad=True), library.ones(1, 2), p
            ).grad_fn.name()
            == "CdistBackward0"
        )
    found = []
    for library in (torch, skimp):
        x, y = [
            library.tensor(numbers((n, 3), "float64", n, ties=False).numpy()).requires_grad_()
            for n in (4, 5)
        ]
        loss = (library.cdist(x, y, p) ** 2).sum() + library.nn.functional.pdist(x, p).sum()
        found.append(library.autograd.grad(loss, (x, y)))
    same(found[1], found[0], 1e-9)


def test_chains() -> None:
    matrices = [f(3, 7), f(7, 2), f(2, 9), f(9, 4)]
    agree(lambda t, *a: t.linalg.multi_dot(list(a)), *matrices, tolerance=1e-4)
    agree(lambda t, *a: t.linalg.multi_dot(list(a)), matrices[0][0], *matrices[1:], tolerance=1e-4)
    agree(lambda t, *a: t.linalg.multi_dot(list(a)), f(3), f(3, 4), f(4))
    agree(lambda t, *a: t.chain_matmul(*a), *matrices, tolerance=1e-4)
    with told_anew(), pytest.warns(UserWarning, match="chain_matmul is deprecated"):
        skimp.chain_matmul(twin(matrices[0]))
    with told_anew(), pytest.warns(UserWarning, match="without specifying the dim arg"):
        skimp.cross(skimp.ones(2, 3), skimp.ones(2, 3))
    agree(lambda t, a: t.cross(a, a.roll(1, 0)), f(4, 3, 2))


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3), (2, 1, 4, 3)])
def test_linear_maps(shape: tuple[int, ...]) -> None:
    x, w, b = f(*shape), f(5, 3, seed=1), f(5, seed=2)
    for bias in (None, b):
        agree(lambda t, x, w, b: t.nn.functional.linear(x, w, b), x, w, bias)
        agree(lambda t, x, w, b: t.nn.functional.linear(x, w[0], None), x, w, bias)
        agree(
            lambda t, x, y, w, b: t.nn.functional.bilinear(x, y, w, b),
            x,
            f(*shape[:-1], 2),
            f(5, 3, 2),
            bias,
        )
    if len(shape) == 3:
        agree(lambda t, x, w, b: t.nn.functional.linear(x.transpose(0, 1), w, b), x, w, b)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_second_derivatives_are_finite_where_rows_are_equal(p: float) -> None:
    """PyTorch has none of pdist and cdist: compared with differences of first ones."""
    x = skimp.tensor([[0.1, 0.9], [0.4, 0.2], [0.7, 0.5]], dtype=skimp.float64)

    def slope(x: Any, create: bool = False) -> Any:
        x = x.detach().requires_grad_()
        total = skimp.nn.functional.pdist(x, p).pow(2).sum() + skimp.cdist(x, x, p).sum()
        (found,) = skimp.autograd.grad((total), x, create_graph=create)
        return x, found

    leaf, first = slope(x, True)
    (second,) = skimp.autograd.grad(first.sum(), leaf)
    near = [slope(x + step)[1].sum() for step in (1e-5 * skimp.eye(6).double()).view(6, 3, 2)]
    back = [slope(x - step)[1].sum() for step in (1e-5 * skimp.eye(6).double()).view(6, 3, 2)]
    moved = skimp.stack(near) - skimp.stack(back)
    assert second.flatten().tolist() == pytest.approx((moved / 2e-5).tolist(), rel=1e-4, abs=1e-4)
