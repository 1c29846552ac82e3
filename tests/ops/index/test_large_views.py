"""`x[...]` of ints and slices where the tensor is large: PyTorch's views, and as few functions as
of a small one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.frames import frames_of

N = 1 << 18
INDICES: list[Any] = [
    0,
    -1,
    slice(1, 3),
    slice(None, None, 2),
    (slice(None), 5),
    (slice(None), slice(2, -1), 3),
    (1, -2, 0),
    (slice(None), slice(None)),
    (slice(0, 99), 1),
    slice(5, 2),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("recorded", [False, True])
def test_views_of_a_large_tensor_are_the_oracles(index: Any, recorded: bool) -> None:
    found = []
    for t in (torch, skimp):
        x = t.arange(N, dtype=t.float32).reshape(4, 64, N // 256).requires_grad_(recorded)
        v = x[index]
        out = [tuple(v.shape), v.stride(), v.storage_offset(), v._base is x]
        out += [type(v.grad_fn).__name__, float(v.detach().sum()), v._version]
        if recorded:
            v.sum().backward()
            out += [float(x.grad.sum()), tuple(x.grad.shape)]
        found.append(out)
    assert found[0] == found[1]


@pytest.mark.parametrize("index", [4, (0, 64), (0, 0, 0, 0), slice(None, None, -1)], ids=str)
def test_refusals_are_the_oracles(index: Any) -> None:
    said = []
    for t in (torch, skimp):
        with pytest.raises((IndexError, ValueError)) as e:
            t.zeros(4, 64, N // 256)[index]
        said.append((e.type, str(e.value)))
    assert said[0] == said[1]


def test_a_view_of_a_large_tensor_makes_few_functions() -> None:
    x = skimp.zeros(4, 64, N // 256, requires_grad=True)
    y = x * 1
    assert len(frames_of(lambda: y[:, 3])) <= 9  # it was 32
    with skimp.no_grad():
        z = x * 1
    assert len(frames_of(lambda: z[:, 3])) <= 9
