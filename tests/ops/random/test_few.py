"""Few numbers drawn into a tensor, or shaped as one: PyTorch's bits and its stream afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
    "uniform_ from close to 0": lambda t, n: t.zeros(n).uniform_(1e-9, 3),
    "uniform_ of few": lambda t, n: t.zeros(n).uniform_(1, 1 + 3e-7),
    "uniform_ of halves": lambda t, n: t.zeros(n, dtype=t.bfloat16).uniform_(-0.3, 0.2).float(),
    "normal_ of halves": lambda t, n: t.zeros(n, dtype=t.bfloat16).normal_(1, 0.3).float(),
    "normal_ of a generator": lambda t, n: t.zeros(n).normal_(
        mean=1, std=2, generator=t.Generator().manual_seed(n)
    ),
    "uniform_ of a narrow range": lambda t, n: t.rand(n, dtype=t.float16).uniform_(100, 100.1),
    "bernoulli_": lambda t, n: t.zeros(n).bernoulli_(0.3),
    "random_": lambda t, n: t.zeros(n, dtype=t.int8).random_(-3, 5),
    "random_ from one on": lambda t, n: t.zeros(n, dtype=t.int64).random_(1, to=None),
    "random_ from one on by names": lambda t, n: t.zeros(n).random_(**{"from": 1, "to": None}),
    "random_ in between": lambda t, n: t.zeros(n).random_(3, to=7),
    "uniform_ of a bool": lambda t, n: t.zeros(n).uniform_(np.bool_(True), 2),
    "normal_ of a bool": lambda t, n: t.zeros(n).normal_(mean=np.bool_(True)),
    "rand of doubles": lambda t, n: t.rand(n, dtype=t.float64),
    "a leaf": lambda t, n: t.randn(n, requires_grad=True).detach(),
    "normal of a size": lambda t, n: t.normal(0.0, 1.0, (n,)),
    "normal of rows": lambda t, n: t.normal(2, 0.3, size=(n, 3)),
    "normal of a generator": lambda t, n: t.normal(
        0, 1, (n, 2), generator=t.Generator().manual_seed(n)
    ),
    "randint_like": lambda t, n: t.randint_like(t.zeros(n, dtype=t.int64), 3, 9),
    "randint_like of floats": lambda t, n: t.randint_like(t.zeros(n), 9),
    "randint_like turned": lambda t, n: t.randint_like(t.zeros(n, 2, dtype=t.int64).t(), 9),
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
    "randint by names": lambda t, n: t.randint(low=-3, high=9, size=(n,)),
    "randint of a size": lambda t, n: t.randint(9, size=(n, 2)),
    "randint of floats": lambda t, n: t.randint(-3, 9, (n,), dtype=t.float32),
    "randint of many floats": lambda t, n: t.randint(0, 1 << 24, (n,), dtype=t.float32),
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


@pytest.mark.parametrize(
    "name", ["normal_", "exponential_", "log_normal_", "random_", "bernoulli_"]
)
def test_an_empty_tensor_of_any_type_is_filled(name: str) -> None:
    for dtype in ("int32", "complex64", "float8_e5m2"):
        for t in (skimp, torch):
            assert getattr(t.zeros(0, dtype=getattr(t, dtype)), name)().shape == (0,)


@pytest.mark.parametrize("dtype", ["complex64", "float8_e5m2"])
def test_types_without_whole_numbers_are_refused(dtype: str) -> None:
    for t in (skimp, torch):
        with pytest.raises(RuntimeError):  # NotImplementedError is one
            t.randint(9, (3,), dtype=getattr(t, dtype))
        with pytest.raises(RuntimeError):
            t.zeros(3, dtype=getattr(t, dtype)).random_()


@pytest.mark.parametrize("n", [4096, 4097, 65_536, 65_537, 131_071, 131_072])
def test_more_numbers_than_lie_at_hand(n: int) -> None:
    def run(t: Any) -> list[bytes]:
        t.manual_seed(n)
        made = [t.rand(3), t.rand(n), t.rand_like(t.zeros(n)), t.randn(n), t.randint(9, (n,))]
        return [x.numpy().tobytes() for x in [*made, t.rand(3)]]

    assert run(skimp) == run(torch)


@pytest.mark.parametrize("n", [40, 100, 104, 640, 1000, 2560, 5000])
def test_normals_that_begin_anywhere(n: int) -> None:
    def run(t: Any) -> list[bytes]:
        t.manual_seed(n)
        found = [t.randn(n) for _ in range(40)]
        found += [x for k in range(1, 20) for x in (t.randn(n + k), t.rand(k), t.randn(n))]
        return [x.numpy().tobytes() for x in [*found, t.get_rng_state()]]

    assert run(skimp) == run(torch)


@pytest.mark.parametrize("n", [2, 300, 2048, 2049])
def test_permutations(n: int) -> None:
    def run(t: Any) -> list[bytes]:
        t.manual_seed(n)
        return [x.numpy().tobytes() for x in (t.randperm(n), t.randperm(n, dtype=t.int32))]

    assert run(skimp) == run(torch)


@pytest.mark.parametrize("last", [[0, 0, 0], [1, -1, 2], [1, float("nan"), 1], [3e38, 3e38, 1]])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_row_that_cannot_be_drawn_from(rows: int, last: list[float]) -> None:
    """Those before it are drawn, as in PyTorch."""

    def run(t: Any) -> list[object]:
        t.manual_seed(rows)
        weights = t.ones(rows, 3)
        weights[-1] = t.tensor(last, dtype=t.float32)
        try:
            found = t.multinomial(weights, 4, True).tolist()
        except RuntimeError as error:
            found = str(error)
        return [found, t.rand(3).tolist()]

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


def test_what_is_no_number_is_refused() -> None:
    for t in (skimp, torch):
        x = t.zeros(3)
        for call in (
            lambda: x.normal_([1]),  # noqa: B023
            lambda: x.normal_(mean=(2,)),  # noqa: B023
            lambda: x.random_(7, **{"from": 5}),  # noqa: B023
            lambda: x.random_(to=5.5),  # noqa: B023
            lambda: x.log_normal_(1 + 1j),  # noqa: B023
        ):
            with pytest.raises(TypeError):
                call()
