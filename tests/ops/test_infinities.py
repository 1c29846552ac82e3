"""Values and gradients where numbers, or the gradients that come, are infinite, NaN or signed
zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp

INF, NAN = float("inf"), float("nan")
ODD = (0.0, -0.0, 1.0, -1.5, INF, -INF, NAN, 30.0, -200.0, 700.0)


def compare(run: Callable[[Any], Any], tolerance: float = 1e-5) -> None:
    """What `run` gives is PyTorch's, signs of zeros too."""
    want, got = [[np.asarray(a) for a in run(lib)] for lib in (torch, skimp)]
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, tolerance, tolerance)
        np.testing.assert_array_equal(np.signbit(b[a == 0].real), np.signbit(a[a == 0].real))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_logaddexp_of_complex_numbers(dtype: str) -> None:
    numbers = [complex(*pair) for pair in itertools.product(ODD, repeat=2)]
    a, b = zip(*itertools.product(numbers, repeat=2), strict=True)

    def run(lib: Any) -> Any:
        kind = getattr(lib, dtype)
        found = lib.logaddexp(lib.tensor(a, dtype=kind), lib.tensor(b, dtype=kind)).numpy()
        return found.real, found.imag

    want, got = run(torch), run(skimp)
    for x, y in zip(want, got, strict=True):
        np.testing.assert_allclose(y, x, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@pytest.mark.parametrize("alpha", [0, 0.0, -0.0, 2])
def test_a_zero_times_what_is_subtracted(alpha: float, dtype: str) -> None:
    def run(lib: Any) -> Any:
        kind = getattr(lib, dtype)
        a = lib.tensor([-0.0, -0.0, 0.0, 1.0]).to(kind)
        b = lib.tensor([1.0, -1.0, 2.0, 3.0]).to(kind)
        if dtype == "int32" and type(alpha) is float:
            with pytest.raises(RuntimeError):
                a.sub(b, alpha=alpha)
            return []
        many = a.repeat(9000).sub(b.repeat(9000), alpha=alpha)[:8]
        found = [a.sub(b, alpha=alpha), a.sub(3, alpha=alpha), lib.rsub(b, a, alpha=alpha), many]
        return [t.double().numpy() for t in [*found, a.clone().sub_(b, alpha=alpha)]]

    compare(run)


@pytest.mark.parametrize("seed", range(40))
def test_gradients_of_adaptive_averages(seed: int) -> None:
    """Only what a window reads gets a share of its gradient."""
    rng = np.random.RandomState(seed)
    nd = seed % 3 + 1
    x, g = rng.randn(2, *rng.randint(1, 8, nd)), rng.randn(2, *rng.randint(1, 6, nd))
    g.reshape(-1)[rng.randint(g.size, size=2)] = rng.choice([INF, -INF, NAN], 2)

    def run(lib: Any) -> Any:
        t, back = lib.tensor(x, requires_grad=True), lib.tensor(g, requires_grad=True)
        y = getattr(lib.nn.functional, f"adaptive_avg_pool{nd}d")(t, g.shape[1:])
        (found,) = lib.autograd.grad(y, t, back, create_graph=True)
        (second,) = lib.autograd.grad(found, back, lib.ones_like(t))
        return [a.detach().numpy() for a in (y, found, second)]

    compare(run)


@pytest.mark.parametrize("seed", range(60))
def test_gradients_of_products(seed: int) -> None:
    """Zeros beside NaN: more than one of all elements make zeros, along a dim the others count."""
    rng = np.random.RandomState(seed)
    shape = tuple(rng.randint(1, 4, rng.randint(1, 4)))
    x = rng.choice([0.0, 0.0, 1.5, -2.0, NAN, INF], shape)
    dim = int(rng.randint(len(shape)))

    def run(lib: Any) -> Any:
        t = lib.tensor(x, requires_grad=True)
        grad = lib.autograd.grad
        found = [grad(y.sum(), t)[0] for y in (t.prod(), t.prod(dim), t.prod(dim, True))]
        found += grad(t.prod(), t, create_graph=True)
        return [np.abs(a.detach().numpy()) for a in found]

    compare(run)
