"""Convolutions without images, channels or places: PyTorch's shapes, gradients and refusals."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

import skimp


def _answer(lib: Any, sizes: tuple[int, ...], groups: int, bias: bool, padding: int) -> Any:
    n, channels, size, made, own = sizes
    x = lib.ones(n, channels, size, 4, requires_grad=True)
    w = lib.ones(made, own, 3, 3, requires_grad=True)
    b = lib.ones(made, requires_grad=True) if bias else None
    try:
        y = lib.nn.functional.conv2d(x, w, b, groups=groups, padding=padding)
        y.sum().backward()
    except (RuntimeError, ValueError) as error:
        return type(error)
    given = (x, w) if b is None else (x, w, b)
    return tuple(y.shape), [t.grad.tolist() for t in given]


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("channels", [0, 2])
def test_convolutions_of_nothing(n: int, channels: int) -> None:
    computed = 0
    for size, made, own, groups, bias, padding in product(
        (0, 4), (0, 2), (0, 1, 2), (1, 2), (False, True), (0, 2)
    ):
        how = ((n, channels, size, made, own), groups, bias, padding)
        expected = _answer(torch, *how)
        assert _answer(skimp, *how) == expected, (how, expected)
        computed += isinstance(expected, tuple)
    assert computed
