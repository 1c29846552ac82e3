"""maximum and minimum: what goes back to each of two elements, beside PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

import skimp

VALUES = [-1.5, -0.0, 0.0, 2.0, float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_each_of_two_equal_numbers_gets_half(name: str, dtype: str) -> None:
    """Of any sign, and twice; 0 times what is infinite is 0."""
    pairs = list(product(VALUES, VALUES))
    found: list[Any] = []
    for t in (torch, skimp):
        kind = getattr(t, dtype)
        x, y = [t.tensor([p[i] for p in pairs], dtype=kind, requires_grad=True) for i in (0, 1)]
        g = t.tensor((VALUES[::-1] * len(pairs))[: len(pairs)], dtype=kind, requires_grad=True)
        parts = t.autograd.grad(getattr(t, name)(x, y), (x, y), g, create_graph=True)
        (again,) = t.autograd.grad([part.sum() for part in parts], g)
        column = t.autograd.grad(getattr(t, name)(x[:7, None], y[7:]).sum(), (x, y))
        found.append([repr(one.double().tolist()) for one in (*parts, again, *column)])
    assert found[0] == found[1]
