"""Norms over no elements: 0 where a sum is meant, an error where only a largest one would do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.samples import same

INF = float("inf")
SHAPES = [(0,), (0, 2), (2, 0)]
DIMS: list[Any] = [None, 0, -1, (0, 1), [], ()]


def _end(library: Any, name: str, shape: Any, ord: Any, how: Any) -> Any:
    try:
        return getattr(library.linalg, name)(library.ones(shape), ord, **how)
    except (RuntimeError, IndexError) as error:
        return type(error), str(error).splitlines()[0]


def _compare(name: str, shape: Any, ord: Any, how: Any) -> None:
    theirs = _end(torch, name, shape, ord, how)
    ours = _end(skimp, name, shape, ord, how)
    if isinstance(theirs, torch.Tensor):
        same(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("ord", [0, 1, 2, 3, -1, -2.5, INF, -INF])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_of_vectors(ord: Any, shape: Any, dim: Any, keepdim: bool) -> None:
    _compare("vector_norm", shape, ord, {"dim": dim, "keepdim": keepdim})
    if dim is None:
        _compare("norm", shape, ord, {})


@pytest.mark.parametrize("ord", [1, -1, 2, -2, INF, -INF, "fro", "nuc"])
@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (3, 0, 2), (0, 0)])
def test_of_matrices(ord: Any, shape: Any) -> None:
    theirs = _end(torch, "matrix_norm", shape, ord, {})
    ours = _end(skimp, "matrix_norm", shape, ord, {})
    if isinstance(theirs, torch.Tensor):
        same(ours, theirs)
    else:
        assert isinstance(ours, tuple)
        assert ours[0] is theirs[0]
