"""Small operands of any layouts: values, types and strides of what pointwise ops make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.support.samples import agree, same_gradients

LAYOUTS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: x.transpose(0, 2),
    lambda x: x.permute(1, 2, 0),
    lambda x: x[::2],
    lambda x: x[:, 1:],
    lambda x: x[:, :1],
    lambda x: x[:1, :, :1],
    lambda x: x[0],
    lambda x: x[:, :, 0],
    lambda x: x[0, 0, 0],
    lambda x: x[:1].expand(3, 3, 3),
    lambda x: x[0, 0, 0].expand(3, 3),
    lambda x: x[0, 0, 0].expand(3).unsqueeze(1),
    lambda x: x[0, :, :1].expand(3, 3),
    lambda x: x.mT,
    lambda x: x[1].T,
    lambda x: x.select(1, -1),
    lambda x: x[:, 1:2].squeeze(1),
    lambda x: x.movedim(0, 2),
    lambda x: x.diagonal(0, 1, 2),
    lambda x: x[0, 0].unfold(0, 1, 1),
]
OPS: list[Callable[..., Any]] = [
    lambda lib, a, b: a + b,
    lambda lib, a, b: a * b - 1,
    lambda lib, a, b: a / (b * b + 1),
    lambda lib, a, b: a < b,
    lambda lib, a, b: lib.where(a > b, a, b),
    lambda lib, a, b: lib.where(a > b, a, 0),
    lambda lib, a, b: lib.maximum(a, b),
    lambda lib, a, b: lib.atan2(a, b),
    lambda lib, a, b: lib.exp(-a),
    lambda lib, a, b: lib.lerp(a, b, 0.5) if a.dtype == b.dtype else a - b,
    lambda lib, a, b: a.clone().mul_(b),
    lambda lib, a, b: a.expand(2, *a.shape) + b,
]
DTYPES = st.sampled_from([torch.float32, torch.float64])


def cube(dtype: torch.dtype, first: int) -> torch.Tensor:
    return (torch.arange(27.0) + first).remainder(5).reshape(3, 3, 3).to(dtype)


@given(st.sampled_from(OPS), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), DTYPES, DTYPES)
@settings(max_examples=400, deadline=None)
def test_any_layouts(op: Any, first: Any, second: Any, one: Any, other: Any) -> None:
    agree(
        lambda lib, x, y: op(lib, first(x), second(y)),
        cube(one, 0),
        cube(other, 2),
        refused="must match|broadcast|can't be cast",
        tolerance=1e-6,
    )


@given(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS))
@settings(max_examples=60, deadline=None)
def test_gradients_of_any_layouts(first: Any, second: Any) -> None:
    x, y = cube(torch.float64, 0), cube(torch.float64, 3)
    try:
        torch.broadcast_shapes(first(x).shape, second(y).shape)
    except RuntimeError:
        return
    same_gradients(lambda lib, x, y: first(x) * second(y) - second(y), x, y)


def test_gradients_of_views_that_are_expanded() -> None:
    x = cube(torch.float64, 1)
    places = torch.tensor([[[0, 2, 1]]]).expand(3, 3, 3)
    programs: list[Callable[..., Any]] = [
        lambda lib, x, at: x.mean(1).sum(0),
        lambda lib, x, at: x.mean(1, True).sum((0, 2)),
        lambda lib, x, at: x.gather(1, at).sum(2),
        lambda lib, x, at: x.sort(2)[0].sum(1),
        lambda lib, x, at: x.scatter(1, at, x.sum().expand(3, 3, 3)),
        lambda lib, x, at: x.scatter(0, at, x[:, :1].expand(3, 3, 3)),
    ]
    for program in programs:
        same_gradients(program, x, places)


@pytest.mark.parametrize("shape", [(2, 3, 0), (0, 3, 2), (2, 0, 3), (2, 1, 3), (0, 1, 1)])
def test_views_of_nothing_and_of_single_elements(shape: tuple[int, ...]) -> None:
    for view in (
        lambda lib, x: x.mT,
        lambda lib, x: x.mT.mT,
        lambda lib, x: x.transpose(0, 2),
        lambda lib, x: x.permute(1, 2, 0),
        lambda lib, x: x[:, :0].transpose(1, 2),
        lambda lib, x: x.mT.select(1, 0),
        lambda lib, x: x.select(0, -1),
        lambda lib, x: x.mT + x.mT,
    ):
        agree(view, torch.ones(shape), refused="out of range|out of bounds|size 0")
