"""Calls that are wrong beyond the types of their arguments: refused as PyTorch refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp

WRONG = {
    "view of negative sizes": lambda t: t.ones(6).view(-2, 3),
    "reshape to negative sizes": lambda t: t.ones(6).reshape(3, -2),
    "large view of negative sizes": lambda t: t.ones(6, 1000, 100).view(-2, 3),
    "range of bools": lambda t: t.arange(5, dtype=t.bool),
    "pinned": lambda t: t.ones(3, pin_memory=True),
    "pinned like": lambda t: t.zeros_like(t.ones(3), pin_memory=True),
    "pinned draw": lambda t: t.randn(3, pin_memory=True),
    "a flag that is none": lambda t: t.ones(3, requires_grad="x"),
    "names": lambda t: t.ones(2, names=("a", "b")),
    "full without a tuple": lambda t: t.full(2, 1),
    "full of nothing": lambda t: t.full((2,), None),
    "no size": lambda t: t.empty(),
    "a size beyond 64 bits": lambda t: t.empty(2**63),
    "index of a device": lambda t: t.device("cuda:99999999999999999999"),
    "no device": lambda t: t.device(None),
    "set to nothing": lambda t: t.ones(2).set_(None),
    "buffer of a word": lambda t: t.frombuffer(b"abcd", dtype="float32"),
    "promotion of a number": lambda t: t.promote_types(t.float32, 5),
    "cast of numbers": lambda t: t.can_cast(1, 2),
    "block of a number": lambda t: t.block_diag(5),
    "negative storage": lambda t: t.UntypedStorage(-1),
    "storage of a word": lambda t: t.UntypedStorage("a"),
    "norm of a word": lambda t: t.nn.utils.clip_grad_norm_([t.ones(2)], "a"),
    "dict": lambda t: t.tensor({1: 2}),
    "bytes": lambda t: t.tensor(b"abc"),
    "sum that can't require grad": lambda t: t.ones(2, requires_grad=True).sum(0, dtype=t.int64),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_with_pytorchs_class_of_error(name: str) -> None:
    kinds: list[Any] = []
    for library in (skimp, torch):
        with pytest.raises(Exception) as caught:  # noqa: PT011  (its class is compared)
            WRONG[name](library)
        kinds.append(caught.type)
    assert issubclass(kinds[0], kinds[1])
