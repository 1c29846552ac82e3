"""Norms over no elements: 0 where a sum is meant, an error where only a largest one would do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.samples import same

INF = float("inf")
SHAPES = [(0,), (0, 2), (2, 0)]
MATRICES = [(0, 2), (2, 0), (3, 0, 2), (0, 0)]
OF_MATRICES: dict[Any, list[Any]] = {  # those whose norm of this order is refused
    **{order: [] for order in (1, 2, INF, "fro", "nuc")},
    -1: [(2, 0), (0, 0)],
    -2: MATRICES,
    -INF: [(0, 2), (3, 0, 2), (0, 0)],
}
DIMS: list[Any] = [None, 0, -1, (0, 1), [], ()]


def _end(library: Any, name: str, shape: Any, ord: Any, how: Any) -> Any:
    try:
        return getattr(library.linalg, name)(library.ones(shape), ord, **how)
    except (RuntimeError, IndexError) as error:
        return type(error), str(error).splitlines()[0]


def _refused(name: str, shape: Any, ord: Any, how: Any) -> bool:
    """Both sides agree; whether they refuse it."""
    theirs = _end(torch, name, shape, ord, how)
    ours = _end(skimp, name, shape, ord, how)
    if isinstance(theirs, torch.Tensor):
        same(ours, theirs)
        return False
    assert ours[0] is theirs[0]
    assert ours[1] == theirs[1] or name == "matrix_norm"
    return True


@pytest.mark.parametrize("ord", [0, 1, 2, 3, -1, -2.5, INF, -INF])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_of_vectors(ord: Any, shape: Any, dim: Any, keepdim: bool) -> None:
    of_nothing = not (isinstance(dim, int) and shape[dim])
    refused = (of_nothing and (ord < 0 or ord == INF)) or (dim == (0, 1) and len(shape) == 1)
    assert _refused("vector_norm", shape, ord, {"dim": dim, "keepdim": keepdim}) is refused
    if dim is None:
        refused = refused if len(shape) == 1 else shape in OF_MATRICES.get(ord, MATRICES)
        assert _refused("norm", shape, ord, {}) is refused


@pytest.mark.parametrize("ord", [1, -1, 2, -2, INF, -INF, "fro", "nuc"])
@pytest.mark.parametrize("shape", MATRICES)
def test_of_matrices(ord: Any, shape: Any) -> None:
    assert _refused("matrix_norm", shape, ord, {}) is (shape in OF_MATRICES[ord])
