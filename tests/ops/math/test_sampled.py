"""Integrals and derivatives of samples, histograms of points, renorm, strides of empty tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import skimp
from tests.support.samples import agree, refusals, same_gradients, twin

X = torch.arange(6.0, dtype=torch.float64).view(2, 3) ** 2
CALLS: dict[str, Any] = {
    "trapezoid": lambda lib, x: lib.trapezoid(x),
    "trapezoid dx": lambda lib, x: lib.trapezoid(x, dx=2.5, dim=0),
    "trapezoid x": lambda lib, x: lib.trapezoid(x, x * 2 + 1),
    "trapezoid vector": lambda lib, x: lib.trapezoid(x, x[0]),
    "trapezoid integers": lambda lib, x: lib.trapezoid(x.long()),
    "trapezoid of nothing": lambda lib, x: lib.trapezoid(x[:, :0]),
    "trapz": lambda lib, x: lib.trapz(x, dx=0.5),
    "cumulative": lambda lib, x: lib.cumulative_trapezoid(x, x * x),
    "cumulative dx": lambda lib, x: lib.cumulative_trapezoid(x, dx=2, dim=0),
    "gradient": lambda lib, x: lib.gradient(x),
    "gradient spacings": lambda lib, x: lib.gradient(x, spacing=[1.0, 2.0]),
    "gradient one dim": lambda lib, x: lib.gradient(x, spacing=2.0, dim=1),
    "gradient at points": lambda lib, x: lib.gradient(x, spacing=[x[:, 0] + 1, x[0] * 3]),
    "gradient second order": lambda lib, x: lib.gradient(x, edge_order=2, dim=1),
    "gradient second order at points": lambda lib, x: lib.gradient(
        x, spacing=[x[0] * 2], dim=1, edge_order=2
    ),
    "renorm": lambda lib, x: lib.renorm(x, 2, 0, 4.0),
    "renorm infinite": lambda lib, x: lib.renorm(x, float("inf"), 1, 3.0),
    "renorm turned": lambda lib, x: lib.renorm(x.t(), 1.5, 0, 4.0),
    "renorm in place": lambda lib, x: x.clone().renorm_(2, 0, 4.0),
    "permuted": lambda lib, x: lib.empty_permuted((2, 3, 4), (1, 0, 2)).stride(),
    "new strided": lambda lib, x: x.new_empty_strided((2, 3), (1, 4)).stride(),
    "nansum into": lambda lib, x: lib.nansum(x, 0, out=lib.empty(0, dtype=lib.float32)),
    "norm of no rows": lambda lib, x: lib.linalg.norm(x[:0], float("inf"), keepdim=True),
    "masked_scatter broadcasts": lambda lib, x: lib.masked_scatter(x[0], x > 3, x * 10),
}
REFUSED: dict[type[Exception], dict[str, Any]] = {
    IndexError: {
        "scalar": lambda lib, x: lib.trapezoid(x.sum()),
        "smallest norm of no rows": lambda lib, x: lib.linalg.norm(x[:0], -float("inf")),
    },
    NotImplementedError: {
        "nansum into integers": lambda lib, x: lib.nansum(x, 0, out=lib.empty(0, dtype=lib.int64))
    },
    RuntimeError: {
        "bool": lambda lib, x: lib.trapezoid(x > 1),
        "points": lambda lib, x: lib.trapezoid(x, x[0, :2]),
        "edge order": lambda lib, x: lib.gradient(x, edge_order=3),
        "too short": lambda lib, x: lib.gradient(x, edge_order=2),
        "twice": lambda lib, x: lib.gradient(x, dim=(0, 0)),
        "count": lambda lib, x: lib.gradient(x, spacing=(1.0, 2.0, 3.0)),
        "renorm p": lambda lib, x: lib.renorm(x, -1, 0, 1),
        "renorm negative": lambda lib, x: lib.renorm(x, 2, 0, -1),
        "renorm vector": lambda lib, x: lib.renorm(x[0], 2, 0, 1),
        "renorm integers": lambda lib, x: lib.renorm(x.long(), 2, 0, 1),
        "permuted short": lambda lib, x: lib.empty_permuted((2, 3, 4), (1, 0)),
        "permuted twice": lambda lib, x: lib.empty_permuted((2, 3, 4), (1, 0, 0)),
        "aminmax into": lambda lib, x: lib.aminmax(x, dim=0, out=(x[0].clone(), x[0].float())),
    },
    TypeError: {"both": lambda lib, x: lib.trapezoid(x, x, dx=2)},
}


@pytest.mark.parametrize("case", CALLS)
def test_calls(case: str) -> None:
    agree(CALLS[case], X, tolerance=1e-12)


@pytest.mark.parametrize(("error", "case"), refusals(REFUSED))
def test_refusals(error: Any, case: Any) -> None:
    agree(case, X, refused=error, message=12)


DIFFERENTIABLE = [
    "trapezoid dx", "trapezoid x", "cumulative", "gradient at points",
    "gradient second order at points", "renorm", "renorm in place", "masked_scatter broadcasts",
]  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_gradients(case: str) -> None:
    same_gradients(CALLS[case], X + 0.3)


@given(st.data())
def test_histogramdd(data: Any) -> None:
    n = data.draw(st.integers(1, 3))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    seed = data.draw(st.integers(0, 99))
    draw = torch.Generator().manual_seed(seed)
    points = torch.randint(-4, 9, (data.draw(st.integers(0, 12)), n), generator=draw).to(dtype) / 2
    bins = data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    words: dict[str, Any] = {"density": data.draw(st.booleans())}
    weight = torch.rand(points.shape[:1], generator=draw).to(dtype)
    if data.draw(st.booleans()):
        words["range"] = [-1.0, 2.5] * n

    def call(lib: Any, points: Any, weight: Any) -> Any:
        found = lib.histogramdd(points, bins, weight=weight, **words)
        return found.hist, list(found.bin_edges)

    for w in (None, weight):
        agree(call, points, w, tolerance=1e-6)


def test_histogramdd_refuses() -> None:
    x = torch.ones(3, 2)
    for f in (
        lambda lib, x: lib.histogramdd(x[0], [1]),
        lambda lib, x: lib.histogramdd(x, [1]),
        lambda lib, x: lib.histogramdd(x, [1, 0]),
        lambda lib, x: lib.histogramdd(x, 3, range=[0, 1]),
        lambda lib, x: lib.histogramdd(x, 3, range=[0, 1.0, 1, 0.0]),
        lambda lib, x: lib.histogramdd(x, 3, weight=x[0]),
    ):
        agree(f, x, refused=RuntimeError, message=20)
    agree(lambda lib, x: lib.histogramdd(x.long(), 3), x, refused=NotImplementedError)


@given(st.data())
def test_scatters_keep_strides(data: Any) -> None:
    """The strides of an input with gaps are the result's, and the gaps' bytes are not shared."""
    wide = torch.randn(6, 8)
    x = wide[:: data.draw(st.sampled_from([1, 2])), :: data.draw(st.sampled_from([1, 2]))]
    if data.draw(st.booleans()):
        x = x.t()
    row = torch.full((x.shape[1],), 7.0)
    ours = skimp.as_strided(twin(wide), tuple(x.shape), x.stride())
    for f in (
        lambda lib, t, row: lib.select_scatter(t, row, 0, 1),
        lambda lib, t, row: lib.slice_scatter(t, row[None], 0, 2, 3),
    ):
        got, want = f(skimp, ours, twin(row)), f(torch, x, row)
        assert got.stride() == want.stride()
        np.testing.assert_array_equal(got.numpy(), want.numpy())
        assert not skimp.shares_memory(got, ours)
