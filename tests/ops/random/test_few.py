"""Few numbers drawn into a tensor, or shaped as one: PyTorch's bits and its stream afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp

DRAWS: dict[str, Callable[[Any, int], Any]] = {
    "normal_": lambda t, n: t.zeros(n).normal_(),
    "normal_ scaled": lambda t, n: t.zeros(n).normal_(0, 0.02),
    "normal_ halved": lambda t, n: t.zeros(n).normal_(1, 0.5),
    "normal_ moved": lambda t, n: t.zeros(n).normal_(1.5, 0.3),
    "normal_ of rows": lambda t, n: t.zeros(n, 16).normal_(-0.0, 2),
    "normal_ of doubles": lambda t, n: t.zeros(n, dtype=t.float64).normal_(),
    "normal_ turned": lambda t, n: t.zeros(n, 4).t().normal_(),
    "uniform_": lambda t, n: t.zeros(n).uniform_(),
    "uniform_ between": lambda t, n: t.zeros(n).uniform_(-1, 2),
    "exponential_": lambda t, n: t.zeros(n).exponential_(),
    "cauchy_": lambda t, n: t.zeros(n).cauchy_(),
    "geometric_": lambda t, n: t.zeros(n).geometric_(0.3),
    "randn of a type": lambda t, n: t.randn(n, dtype=t.float32, device="cpu"),
    "randn of a generator": lambda t, n: t.randn(n, generator=t.Generator().manual_seed(n)),
    "randperm of a generator": lambda t, n: t.randperm(n, generator=t.Generator().manual_seed(n)),
    "randint of a generator": lambda t, n: t.randint(
        9, (n,), generator=t.Generator().manual_seed(n)
    ),
    "randn of doubles": lambda t, n: t.randn(n, dtype=t.float64, device=t.device("cpu")),
    "randint of a type": lambda t, n: t.randint(0, 9, (n,), dtype=t.int64, device="cpu"),
    "randint of bytes": lambda t, n: t.randint(9, (n,), dtype=t.uint8, requires_grad=False),
    "randperm of a type": lambda t, n: t.randperm(n, dtype=t.int64, device="cpu"),
    "rand_like of a type": lambda t, n: t.rand_like(t.zeros(n), dtype=t.float64, device="cpu"),
    "randn_like": lambda t, n: t.randn_like(t.zeros(n)),
    "rand_like": lambda t, n: t.rand_like(t.zeros(2, n)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_few_numbers(name: str) -> None:
    def run(t: Any) -> list[bytes]:
        t.manual_seed(3)
        found = []
        for n in (16, 1, 32, 5, 48, 0, 17, 512, 640, 16, 3):
            found += [DRAWS[name](t, n), t.randn(16), t.rand(3)]
        return [x.contiguous().numpy().tobytes() for x in found]

    assert run(skimp) == run(torch)


@pytest.mark.parametrize("n", [4096, 4097, 65_536, 65_537, 131_071, 131_072])
def test_more_numbers_than_lie_at_hand(n: int) -> None:
    def run(t: Any) -> list[bytes]:
        t.manual_seed(n)
        made = [t.rand(3), t.rand(n), t.rand_like(t.zeros(n)), t.randn(n), t.randint(9, (n,))]
        return [x.numpy().tobytes() for x in [*made, t.rand(3)]]

    assert run(skimp) == run(torch)


def test_drawing_is_a_write() -> None:
    for t in (skimp, torch):
        x, w = t.zeros(3), t.ones(3, requires_grad=True)
        y = (w * x).sum()
        x[1:].uniform_()
        assert x._version == 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            w.normal_()
        with pytest.raises(RuntimeError, match="but found std -1"):
            x.normal_(0, -1)
        assert x._version == 1
