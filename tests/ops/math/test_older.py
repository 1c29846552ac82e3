"""Older and lesser-used names, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import alike, both

LIBS = (skimp, torch)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (7, 3), (8, 2), (3, 4), (1, 1), (3, 3, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal(shape: tuple[int, ...], wrap: bool) -> None:
    alike(lambda lib: lib.zeros(shape).fill_diagonal_(2.5, wrap))


def test_fill_diagonal_passes_no_gradient_where_it_wrote() -> None:
    def program(lib: Any) -> Any:
        x = lib.ones(3, 3, requires_grad=True)
        y = x * 2
        y.fill_diagonal_(0.0)
        y.sum().backward()
        return x.grad.tolist()

    alike(program)
    for lib in LIBS:
        with pytest.raises(RuntimeError):
            lib.ones(3).fill_diagonal_(1)
        with pytest.raises(RuntimeError, match="equal length"):
            lib.ones(3, 3, 2).fill_diagonal_(1)


def test_a_python_function_of_each_element() -> None:
    def program(lib: Any) -> Any:
        x = lib.arange(6.0).reshape(2, 3)
        x.apply_(lambda v: v * v + 1)
        x.t().map_(lib.ones(3, 2), lambda a, b: a - b)
        return x.tolist()

    alike(program)
    for lib in LIBS:
        with pytest.raises((RuntimeError, TypeError), match="requires grad"):
            lib.ones(2, requires_grad=True).apply_(abs)


@pytest.mark.parametrize("given", [(0, 3), (1, 2.5, 0.5), (3, 0, -1), (2, 2)])
def test_range(given: tuple[Any, ...]) -> None:
    for lib in LIBS:
        with pytest.warns(UserWarning, match="deprecated"):
            found = lib.range(*given)
        if lib is skimp:
            ours = found
    np.testing.assert_allclose(ours.numpy(), found.numpy())
    assert str(ours.dtype) == str(found.dtype)


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 1.5])
@pytest.mark.parametrize("by", ["lengths", "offsets"])
def test_segment_reduce(how: str, initial: float | None, by: str) -> None:
    data = np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)

    def program(lib: Any) -> Any:
        x = lib.tensor(data, requires_grad=True)
        where = lib.tensor([2, 0, 4, 1] if by == "lengths" else [0, 2, 2, 6, 7])
        y = lib.segment_reduce(x, how, **{by: where}, axis=0, initial=initial)
        y[lib.isfinite(y)].sum().backward()
        return y.detach().numpy(), x.grad.numpy()

    ours, theirs = both(program)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_segment_reduce_refuses_lengths_that_do_not_fit() -> None:
    for lib in LIBS:
        with pytest.raises(RuntimeError):
            lib.segment_reduce(lib.ones(3), "sum", lengths=lib.tensor([1, 1]))
        with pytest.raises(RuntimeError):
            lib.segment_reduce(lib.ones(3), "median", lengths=lib.tensor([3]))


OLDER = """
T.ones(3).map2_(T.ones(3), T.arange(3.), lambda a, b, c: a + b * c)
T.gcd_(T.tensor([4]), T.tensor([6]))
T.lcm_(T.tensor([4]), T.tensor([6]))
T.ldexp_(T.ones(1), T.tensor([2]))
T.xlogy_(T.ones(2), T.tensor([1., 2.]))
[(T.xlogy(x, float('nan')).backward(), x.grad) for x in [T.tensor(0., requires_grad=True)]]
T.dsmm(T.ones(2, 3), T.ones(3, 2))
T.arange(6.).slice_inverse(T.ones(3), 0, 0, 3, 1)
T.tensor(True).cumsum_(0)
(T.ones(3, 0) > 0).cumprod_(0)
T.tensor(1 + 2j).cummax(0)[0]
T.tensor(1 + 2j).cummin(-1)[1]
T.arange(12.)[3:6].slice_inverse(T.ones(12), 0, 3, 6, 1)
""".strip().splitlines()


OLDER_REFUSED = [
    (RuntimeError, "T.ones(2).eig()"),
    (RuntimeError, "T.ones(2).symeig()"),
    (RuntimeError, "T.ones(2).solve(T.ones(2))"),
    (RuntimeError, "T.ones(2).reinforce(1)"),
]


@pytest.mark.parametrize("text", OLDER)
def test_older_calls(text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}))


@pytest.mark.parametrize(("error", "text"), OLDER_REFUSED)
def test_older_calls_refused(error: type[Exception], text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}), refused=error)
