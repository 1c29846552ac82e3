"""Sparse tensors with their dimensions in another order, as PyTorch's are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.samples import marked

# PyTorch says once that invariants are not checked
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant:UserWarning")

CALLS = """
x.transpose(0, 1)
x.transpose(-1, 0)
t.transpose(x, 1, 0)
x.swapaxes(0, 1)
t.swapaxes(x, 0, 1)
x.swapaxes(axis0=-1, axis1=0)
x.swapdims(0, 1)
x.swapdims(dim0=0, dim1=1)
x.adjoint()
t.adjoint(x)
x.mT
x.mH
x.H
x.t()
x.conj()
x.is_conj()
x.is_neg()
x.resolve_conj()
x.resolve_neg()
! x.transpose(0, 5)
! x.swapaxes(0, -6)
"""

ORDERS = """
x.permute(0, 1, 2)
x.permute(1, 0, 2)
x.permute((2, 0, 1))
x.permute(dims=(-1, 1, 0))
t.permute(x, (2, 1, 0))
x.movedim(0, 1)
x.moveaxis(0, -1)
t.movedim(x, (0, 1), (1, 2))
x.T
x.mT
x.mH
x.H
x.adjoint()
x.t()
x.transpose(0, 2)
x.transpose(2, 2)
x.permute(0, 1)
x.permute(0, 0, 1)
x.permute(0, 1, 7)
"""


def matrix(t: Any, layout: str) -> Any:
    return t.tensor([[1, 2.0, 0], [0, 0, 3 + 1j]]).to_sparse(layout=getattr(t, layout))


def cube(t: Any, sparse_dim: int) -> Any:
    return t.tensor([[[0.0, 1], [2, 0], [3, 0]], [[0, 4], [0, 5], [6, 0]]]).to_sparse(sparse_dim)


def told(call: str, t: Any, x: Any) -> Any:
    """What a call makes, or the class and words of what it raises."""
    try:
        made = eval(call, {"t": t, "x": x})
    except (RuntimeError, IndexError, NotImplementedError) as error:
        return type(error).__name__, str(error)
    if isinstance(made, bool):
        return made
    return str(made.layout).partition(".")[2], made.is_conj(), made.to_dense().tolist()


def _is_refusal(end: Any) -> bool:
    return isinstance(end, tuple) and end[0].endswith("Error")


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
@pytest.mark.parametrize(("call", "refused"), marked(CALLS))
def test_matrices(call: str, refused: bool, layout: str) -> None:
    expected = told(call, torch, matrix(torch, layout))
    assert _is_refusal(expected) is refused
    assert told(call, skimp, matrix(skimp, layout)) == expected


@pytest.mark.parametrize("sparse_dim", [1, 2, 3])
def test_more_dims_and_dense_ones(sparse_dim: int) -> None:
    refused = 0
    for call, _ in marked(ORDERS):
        expected = told(call, torch, cube(torch, sparse_dim))
        assert told(call, skimp, cube(skimp, sparse_dim)) == expected, call
        refused += _is_refusal(expected)
    assert refused == {1: 17, 2: 15, 3: 5}[sparse_dim]  # dims that are dense don't change places


@pytest.mark.parametrize("call", ["x.T", "x.permute(1, 0)", "x.movedim(0, 1)"])
def test_what_compressed_tensors_have_not(call: str) -> None:
    for t in (torch, skimp):
        kind, _ = told(call, t, matrix(t, "sparse_csr"))
        assert kind == "NotImplementedError"


def test_the_order_of_entries() -> None:
    """Entries in another order are not coalesced; those that keep it are."""
    x = cube(skimp, 3).coalesce()
    assert x.permute(0, 1, 2).is_coalesced()
    assert not x.permute(0, 2, 1).is_coalesced()
    assert cube(skimp, 1).coalesce().permute(0, 2, 1).is_coalesced()
    assert x.permute(2, 1, 0).coalesce().indices().tolist() == sorted_places(x)


def sorted_places(x: Any) -> list[list[int]]:
    places = sorted(zip(*x.indices().flip(0).tolist(), strict=True))
    return [list(row) for row in zip(*places, strict=True)]


def test_gradients_of_values() -> None:
    for t in (torch, skimp):
        values = t.tensor([1.0, 2, 3], requires_grad=True)
        x = t.sparse_coo_tensor(t.tensor([[0, 1, 1], [2, 0, 1], [1, 1, 0]]), values, (2, 3, 2))
        (x.permute(2, 0, 1).to_dense() * t.arange(12.0).view(2, 2, 3)).sum().backward()
        assert values.grad.tolist() == [8.0, 9.0, 4.0]
