"""Writes whose target shares memory with what they read, or with itself: refused and computed where
PyTorch does.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp

Setup = dict[str, Any]


def _views(lib: Any, memory: Any, draw: random.Random) -> Any:
    """A 2 x 3 or 3 x 3 view of 24 numbers; some overlap themselves."""
    offset = draw.choice([0, 0, 1, 3, 6, 12])
    kind = draw.randrange(6)
    if kind == 0:
        return memory[offset : offset + 9].view(3, 3)
    if kind == 1:
        return memory[offset : offset + 9].view(3, 3).t()
    if kind == 2:
        return memory[offset : offset + 3].expand(3, 3)
    if kind == 3:
        return memory[offset : offset + 1].expand(3, 3)
    if kind == 4:
        return memory[:12].view(3, 4)[:, 1:]
    return memory[offset : offset + 3].view(3, 1).expand(3, 3)


WRITES: dict[str, Callable[[Any, Any, Any, Setup], Any]] = {
    "copy_": lambda lib, t, s, k: t.copy_(s),
    "copy_ of a row": lambda lib, t, s, k: t.copy_(s[0]),
    "copy_ of one": lambda lib, t, s, k: t.copy_(s[0, 0]),
    "x[:] =": lambda lib, t, s, k: t.__setitem__(slice(None), s),
    "add_": lambda lib, t, s, k: t.add_(s),
    "mul_": lambda lib, t, s, k: t.mul_(s[0]),
    "lerp_": lambda lib, t, s, k: t.lerp_(s, 0.5),
    "addcmul_": lambda lib, t, s, k: t.addcmul_(s, s),
    "clamp_": lambda lib, t, s, k: t.clamp_(s),
    "logical_and_": lambda lib, t, s, k: t.logical_and_(s),
    "eq_": lambda lib, t, s, k: t.eq_(s),
    "fill_": lambda lib, t, s, k: t.fill_(s[1, 1]),
    "zero_ of the conjugate": lambda lib, t, s, k: t.mul(1j).copy_(s).conj().imag.zero_(),
    "index_copy_": lambda lib, t, s, k: t.index_copy_(0, k["rows"], s[:2]),
    "index_add_": lambda lib, t, s, k: t.index_add_(1, k["rows"], s[:, :2]),
    "index_add_ of rows": lambda lib, t, s, k: t.index_add_(0, k["rows"], s[:2]),
    "index_reduce_": lambda lib, t, s, k: t.index_reduce_(0, k["rows"], s[:2], "amax"),
    "index_fill_": lambda lib, t, s, k: t.index_fill_(0, k["rows"], s[0, 0]),
    "index_put_": lambda lib, t, s, k: t.index_put_((k["rows"],), s[:2]),
    "index_put_ adds": lambda lib, t, s, k: t.index_put_((k["rows"],), s[:2], accumulate=True),
    "x[mask] =": lambda lib, t, s, k: t.__setitem__(k["mask"], s[0, :1]),
    "x[rows] =": lambda lib, t, s, k: t.__setitem__(k["rows"], s[1]),
    "masked_fill_": lambda lib, t, s, k: t.masked_fill_(k["mask"], s[0, 0]),
    "masked_scatter_": lambda lib, t, s, k: t.masked_scatter_(k["mask"], s),
    "scatter_": lambda lib, t, s, k: t.scatter_(0, k["places"], s),
    "scatter_ of a number": lambda lib, t, s, k: t.scatter_(0, k["places"], 2.0),
    "scatter_add_": lambda lib, t, s, k: t.scatter_add_(1, k["places"], s),
    "scatter_reduce_": lambda lib, t, s, k: t.scatter_reduce_(0, k["places"], s, "sum"),
    "put_": lambda lib, t, s, k: t.put_(k["all"], s),
    "tril_": lambda lib, t, s, k: t.tril_(),
    "triu_": lambda lib, t, s, k: t.triu_(1),
    "fill_diagonal_": lambda lib, t, s, k: t.fill_diagonal_(0.0),
    "where": lambda lib, t, s, k: lib.where(k["mask"], s, s, out=t),
    "neg": lambda lib, t, s, k: lib.neg(s, out=t),
    "_foreach_copy_": lambda lib, t, s, k: lib._foreach_copy_([t], [s]),
}


def _made(lib: Any, seed: int, shared: bool) -> tuple[Any, Any, Any, Setup]:
    draw = random.Random(seed)
    memory = lib.arange(24.0) % 5
    target = _views(lib, memory, draw)
    source = _views(lib, memory if shared else lib.arange(24.0) % 7, draw)
    known = {
        "rows": lib.tensor([2, 1]),
        "mask": lib.tensor([[True, False, True], [False, False, True], [True, True, False]]),
        "all": lib.tensor([[3, 1, 0], [8, 2, 4], [7, 5, 6]]),
        "places": lib.tensor([[2, 1, 0], [0, 2, 1], [1, 0, 2]]),
    }
    return memory, target, source, known


def _answer(lib: Any, write: Any, seed: int, shared: bool) -> tuple[str, Any, list[str]]:
    memory, target, source, known = _made(lib, seed, shared)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            write(lib, target, source, known)
        except (RuntimeError, IndexError, TypeError) as error:
            return type(error).__name__, str(error), []
    said = [str(one.message).split(" (Triggered")[0] for one in noted]
    said = [text for text in said if "in beta" not in text]
    return "computed", memory.tolist(), said


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_overlapping_writes_are_refused_where_pytorch_does(name: str, shared: bool) -> None:
    torch.set_warn_always(True)
    kinds = set()
    try:
        for seed in range(80):
            expected = _answer(torch, WRITES[name], seed, shared)
            found = _answer(skimp, WRITES[name], seed, shared)
            assert found[0] == expected[0], (seed, expected, found)
            assert found[2] == expected[2], (seed, expected, found)
            if expected[0] != "computed" or not shared:
                assert found[1] == expected[1], (seed, expected, found)
            kinds.add(expected[0])
    finally:
        torch.set_warn_always(False)
    assert "computed" in kinds


@pytest.mark.parametrize("shape", [(3,), (2, 3), (8, 1, 3, 3), (1, 2), (1,), (1, 1, 4)])
def test_a_tensor_may_be_written_over_itself(shape: tuple[int, ...]) -> None:
    def seen(library: Any) -> Any:
        x = library.zeros(*shape)
        x[:] -= 1
        x[...] += 3
        x.data[:] *= library.full(shape, 2.0)
        w = library.nn.Parameter(library.zeros(*shape))
        w.data[:] -= library.ones(*shape)
        return x.tolist(), w.tolist()

    assert seen(skimp) == seen(torch)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        "x[:] = x[0]", "x[...] = x[2]", "x[None] = x[1]", "x[:, :] = x[:1]", "x[:2] = x[1, 0]",
        "x[1] = x[1, 0]", "x[1:] = x[1]", "x[:] = x[0] * 2", "x[:] = x[:2]", "x[:] = x.T[:, 0]",
    ],
)  # fmt: skip
def test_a_part_may_be_written_over_the_whole(write: str, requires_grad: bool) -> None:
    """PyTorch expands what is assigned before it looks for overlaps."""

    def seen(library: Any) -> Any:
        leaf = library.arange(6.0).reshape(3, 2).requires_grad_(requires_grad)
        x = leaf * 1
        try:
            exec(write, {"x": x})
        except RuntimeError as error:
            return str(error)
        if requires_grad:
            (x * x).sum().backward()
        return x.tolist(), x._version, leaf.grad.tolist() if requires_grad else None

    assert seen(skimp) == seen(torch)
