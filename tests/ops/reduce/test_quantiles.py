"""Quantiles against PyTorch: several at once, what is missing, and where the gradients go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp

Outcome = tuple[Any, tuple[int, ...], Any]


def _outcome(torch_like: Any, name: str, values: Any, q: Any, dim: int | None, how: str) -> Outcome:
    """The quantiles, their strides, and the gradient of their sum."""
    x = torch_like.tensor(values, requires_grad=True)
    ranks = torch_like.tensor(q) if isinstance(q, list) else q
    y = getattr(torch_like, name)(x, ranks, dim, interpolation=how)
    y.sum().backward()
    return y.detach().numpy(), tuple(y.stride()), x.grad.numpy()


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("q", [0.3, [0.1, 0.5, 0.9], [0.25]])
@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("missing", [0, 1])  # of two, PyTorch doesn't say which one is the last
def test_quantiles(name: str, q: Any, how: str, dim: int | None, missing: int) -> None:
    values = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    values.reshape(-1)[8 : 8 + missing] = np.nan
    mine, theirs = [_outcome(t, name, values, q, dim, how) for t in (skimp, torch)]
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-6, atol=1e-7)
    assert mine[1] == theirs[1]
    np.testing.assert_allclose(mine[2], theirs[2], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("q", [0.3, 1.0, [0.0, 0.05, 0.5, 0.95]])
@pytest.mark.parametrize("dim", [None, 0, 1, 2])
@pytest.mark.parametrize("keepdim", [False, True])
def test_quantiles_that_nobody_records(name: str, q: Any, dim: int | None, keepdim: bool) -> None:
    """Small ones are NumPy's work, with the bits and strides of those that are recorded."""
    x = skimp.randn(3, 5, 4, generator=skimp.Generator().manual_seed(3))
    ranks = skimp.tensor(q) if isinstance(q, list) else q
    alone = getattr(skimp, name)(x, ranks, dim, keepdim)
    recorded = getattr(skimp, name)(x.clone().requires_grad_(), ranks, dim, keepdim).detach()
    assert alone.stride() == recorded.stride()
    assert alone.numpy().tobytes() == recorded.numpy().tobytes()
