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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("seed", range(30))
def test_tangents_of_running_logarithms_of_sums(seed: int) -> None:
    """The gradient is taken in logarithms, the tangent by its derivative at zero."""
    rng = np.random.RandomState(seed)
    shape = tuple(rng.randint(1, 5, rng.randint(1, 4)))
    dim = int(rng.randint(-len(shape), len(shape)))
    x, v, g = rng.randn(3, *shape)
    x.reshape(-1)[0] = rng.choice([-INF, 3.0])

    def run(lib: Any) -> Any:
        f = lambda t: lib.logcumsumexp(t, dim)  # noqa: E731
        t, back = lib.tensor(x, requires_grad=True), lib.tensor(g, requires_grad=True)
        (first,) = lib.autograd.grad(f(t), t, back, create_graph=True)
        (second,) = lib.autograd.grad((first * lib.tensor(v))[t != -INF].sum(), t)
        _, tangent = lib.func.jvp(f, (t.detach(),), (lib.tensor(v),))
        return [a.detach().numpy() for a in (first, tangent)] + [second.numpy()[x != -INF]]

    for i, (theirs, ours) in enumerate(zip(run(torch), run(skimp), strict=True)):
        known = np.where(np.isnan(theirs), 0, theirs) if i == 1 else theirs
        np.testing.assert_allclose(ours, known, 1e-4, 1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("p", [2, 1, 3, 1.5, INF, -1])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_derivatives_of_norms_of_zeros(dim: int | None, p: float) -> None:
    """The gradient is 0 there, and so is what is linear in it: its derivative and the tangent."""
    x = np.array([[0.0, 0.0, 0.0], [0.0, 3.0, -4.0]])

    def run(lib: Any) -> Any:
        f = lambda t: lib.linalg.vector_norm(t, p, dim)  # noqa: E731
        t = lib.tensor(x, requires_grad=True)
        y = f(t)
        back = lib.ones_like(y).detach().requires_grad_()
        (first,) = lib.autograd.grad(y, t, back, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), back, allow_unused=True)
        _, tangent = lib.func.jvp(f, (lib.tensor(x),), (lib.ones_like(t),))
        return [a.detach().numpy() for a in (y, first, second, tangent)]

    for i, (theirs, ours) in enumerate(zip(run(torch), run(skimp), strict=True)):
        known = np.where(np.isnan(theirs), ours, theirs) if i > 1 else theirs
        np.testing.assert_allclose(ours, known, 1e-6, 1e-9)
