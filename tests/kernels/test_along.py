"""Gather, scatter and scatter_add of small arrays, by C and as it stands for it, and PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import skimp
from skimp._kernels import compiled
from skimp._kernels.loops import along

SHAPES = [((7,), (9,)), ((5, 6), (5, 6)), ((5, 6), (3, 9)), ((2, 3, 4), (2, 2, 3)), ((4, 1),) * 2]


@pytest.fixture(params=["plain", "compiled"])
def loops(request: Any) -> Any:
    if request.param == "compiled" and compiled.loops() is None:
        pytest.skip("nothing is compiled")
    return along if request.param == "plain" else compiled.loops()


@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
@pytest.mark.parametrize(("shape", "own"), SHAPES)
@pytest.mark.parametrize("dim", [0, -1])
def test_elements_along_a_dim_are_pytorchs(
    loops: Any, shape: Any, own: Any, dim: int, kind: str
) -> None:
    draw = np.random.default_rng(4)
    sizes = list(own)
    for d, n in enumerate(shape):
        sizes[d] = own[d] if d == dim % len(shape) else min(own[d], n)
    x = (9 * draw.standard_normal(shape)).astype(kind)
    index = draw.integers(0, shape[dim], sizes)
    values = (9 * draw.standard_normal(sizes)).astype(kind)
    given = torch.tensor(x), dim, torch.tensor(index)
    assert_array_equal(loops.gathered(x, dim, index), torch.gather(*given))
    into = x.copy()
    assert loops.added_along(into, dim, index, values)
    assert_array_equal(into, torch.scatter_add(*given, torch.tensor(values)))
    into = x.copy()
    assert loops.put_along(into, dim, index, into.dtype.type(3))
    assert_array_equal(into, torch.scatter(*given, 3))
    once = np.argsort(draw.random(shape), dim)
    assert loops.put_along(into, dim, once, x)
    theirs = torch.scatter(torch.tensor(x), dim, torch.tensor(once), torch.tensor(x))
    assert_array_equal(into, theirs)


def test_what_is_not_for_it_changes_nothing(loops: Any) -> None:
    x, index, values = np.ones((4, 6)), np.zeros((4, 2), np.int64), np.ones((4, 2))
    kept = x.copy()
    for dim, at in (
        (2, index), (1.0, index), (True, index), (1, index + 6), (1, index - 1), (1, index[0]),
        (1, index.astype("i")), (1, index[:, :0]), (1, index.T), (0, np.zeros((4, 7), np.int64)),
        (1, np.zeros((5, 2), np.int64)), (1, np.zeros((4, 1025), np.int64)), (1, None),
    ):  # fmt: skip
        assert loops.gathered(x, dim, at) is None
        assert not loops.put_along(x, dim, at, np.float64(2))
        assert not loops.added_along(x, dim, at, values)
    for wrong in (values.astype("f"), values[:, :1], values[::2], 2.0, np.float32(2), x[:, :2], x):
        assert not loops.added_along(x, 1, index, wrong)
        assert not loops.put_along(x, 1, index, wrong)
    whole = index.copy()
    assert not loops.put_along(whole, 1, whole, np.int64(1))
    assert_array_equal(x, kept)
    assert_array_equal(whole, index)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "complex64", "int32"])
def test_small_tensors_of_other_types(dtype: str) -> None:
    made = []
    for t in (torch, skimp):
        x = t.arange(12).reshape(3, 4).to(getattr(t, dtype))
        at = t.tensor([[0, 3], [1, 1], [2, 0]])
        made.append([x.gather(1, at), x.scatter(1, at, x[:, :2].clone()), x.scatter(1, at, 1)])
        if dtype != "bool":
            made[-1].append(x.scatter_add(1, at, x[:, :2].clone()))
    for one, other in zip(*made, strict=True):
        assert_array_equal(one, other)
