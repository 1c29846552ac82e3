"""Gradients of reductions where elements are nan, or a result has nothing to share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp

NAN = float("nan")
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "amax": lambda lib, t: lib.amax(t, 1),
    "amin": lambda lib, t: lib.amin(t),
    "aminmax": lambda lib, t: sum(lib.aminmax(t, dim=1, keepdim=True)),
    "aminmax's largest": lambda lib, t: lib.aminmax(t).max,
    "max": lambda lib, t: lib.max(t),
    "nansum": lambda lib, t: t.nansum(1) * NAN,
    "nansum of all": lambda lib, t: t.nansum(dtype=lib.float64),
    "nanmean": lambda lib, t: t.nanmean(1),
    "norm 0": lambda lib, t: lib.linalg.vector_norm(t, 0),
    "prod": lambda lib, t: t[0, 0].prod() + t[0, 1].prod(0),
    "scatter": lambda lib, t: t.scatter(1, lib.tensor([[0], [2]]), 2.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_and_nodes_are_pytorchs(name: str) -> None:
    found = []
    for lib in (torch, skimp):
        for rows in ([[NAN, 1.0, 1.0], [3.0, 2.0, 3.0]], [[NAN, NAN, NAN], [0.0, 1.0, 1.0]]):
            t: Any = lib.tensor(rows, requires_grad=True)
            y = CALLS[name](lib, t)
            (g,) = lib.autograd.grad(y.sum(), t, allow_unused=True)  # type: ignore[attr-defined]
            found.append(
                (str(None if g is None else g.tolist()), y.tolist().__repr__(), y.grad_fn.name())
            )
    assert found[2:] == found[:2]


def test_a_products_gradient_without_bytes() -> None:
    x = skimp.zeros(2, 3, device="meta", requires_grad=True)
    for made in (x.prod(), x.prod(1), x.prod(0, keepdim=True)):
        (g,) = skimp.autograd.grad(made.sum(), x)
        assert g.is_meta
        assert g.shape == x.shape
