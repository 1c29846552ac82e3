"""Sizes: what they take, beside PyTorch's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import skimp

VALUES: list[Any] = [
    [], [2, 3], ["a"], [1.5], [True], [None], [2, "a"], "ab", [[1]], 5, None, [-1], range(3),
    [np.int64(2)], [np.float32(2)], (2**40,), {3: 1}, [b"a"], [1, 2j],
]  # fmt: skip


def _answer(make: Any, value: Any) -> str:
    try:
        return repr(make(value))
    except TypeError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_size_takes_integers_only(value: Any) -> None:
    for make in (lambda m, v: m.Size(v), lambda m, v: m.Size([1]) + tuple(v)):
        ours, theirs = [_answer(lambda v, m=m, f=make: f(m, v), value) for m in (skimp, torch)]
        assert ours == theirs


def test_what_is_made_of_sizes_is_a_size() -> None:
    size = skimp.ones(2, 3, 4).shape
    for made in (size, size[1:], size * 2, size.__add__((1,)), copy.deepcopy(size)):
        assert type(made) is skimp.Size
    assert type(pickle.loads(pickle.dumps(size))) is skimp.Size
    assert repr(skimp.Size([skimp.tensor(2)])) == "torch.Size([2])"
