"""Gradients of views that show a part of a tensor: the bits of PyTorch's sums, not its zeros."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.autograd.parts import has_negative_zero

ALL = slice(None)


def values(rng: Any, shape: tuple[int, ...], kind: str) -> Any:
    """Many negative zeros, and some infinities."""
    a = np.asarray(rng.integers(-1, 2, shape) * 0.5, kind).reshape(-1)
    a[rng.random(a.size) < 0.6] = -0.0
    if a.dtype.kind == "f":  # the oracle multiplies complex infinities to NaN
        a[rng.random(a.size) < 0.03] = np.inf
        a[rng.random(a.size) < 0.03] = -np.inf
    return a.reshape(shape)


def view_of(y: Any, rng: Any) -> Any:
    shape = tuple(y.shape)
    d = int(rng.integers(0, 3))
    i = int(rng.integers(0, shape[d]))
    views: list[Callable[[], Any]] = [
        lambda: y.select(d, i - shape[d]),
        lambda: y.narrow(d - 3, i, shape[d] - i),
        lambda: y[(*(ALL,) * d, i)],
        lambda: y[(*(ALL,) * d, slice(i, None, 2))],
        lambda: y.diagonal(1 - d, 0, 2),
        lambda: y * 1,
        lambda: y[0, 1, -1],
        lambda: y[:, None, i % shape[1] :, ..., 0],
        lambda: y.select(0, 0),
    ]
    return views[rng.integers(0, len(views))]()


def gradient(library: Any, seed: int, kind: str) -> Any:
    """Of a tensor of which views at random are asked, by gradients at random."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 6, 3).tolist())
    x = library.from_numpy(values(rng, shape, kind)).requires_grad_()
    y = x if seed % 3 else (x * 1).transpose(0, 1)
    views = [view_of(y, rng) for _ in range(rng.integers(1, 9))]
    grads = [library.from_numpy(values(rng, tuple(v.shape), kind)) for v in views]
    library.autograd.backward(views, grads)
    return x.grad.numpy()


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "c8"])
def test_the_bits_are_those_of_sums_of_whole_tensors(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for seed in range(60):
            want, got = [gradient(one, seed, kind) for one in (torch, skimp)]
            same = np.isnan(want) & np.isnan(got)
            want, got = [np.where(same, 0, a).astype(kind).tobytes() for a in (want, got)]
            assert got == want, seed


def steps(library: Any, n: int, shape: tuple[int, ...]) -> Any:
    x = library.ones(shape, requires_grad=True)
    total = functools.reduce(lambda h, i: h * 0.5 + x[:, i], range(n), 0.0)
    return x, total.sum()


@pytest.mark.parametrize("n", [64, 40_000])
def test_a_loop_of_selects_has_one_gradient_of_all_steps(n: int) -> None:
    """One step's gradient is a sixteenth of all; 640,000 elements are a gradient that is large."""
    shape = (n // 8, 16, 8)
    with skimp.config.using(defer="never"):
        x, loss = steps(skimp, 16, shape)
        before = skimp.cuda.memory_allocated()
        skimp.cuda.reset_peak_memory_stats()
        loss.backward()
        above = skimp.cuda.max_memory_allocated() - before
    part, whole = 4 * n, 4 * n * 16
    assert whole <= above <= whole + 3 * part  # with zeros for each step: two and more
    same, loss = steps(torch, 16, shape)
    loss.backward()
    assert np.array_equal(x.grad.numpy(), same.grad.numpy())


def test_a_large_part_is_added_where_it_belongs() -> None:
    found = []
    for library in (torch, skimp):
        x = library.linspace(-1, 1, 600_000).reshape(3, 200_000).requires_grad_()
        y = x * 1
        (y[:2] * 2 + y[1:] * y[0]).sum().backward()
        found.append(x.grad.numpy().tobytes())
    assert found[0] == found[1]


def seen(library: Any) -> list[Any]:
    """What looks at gradients on their way sees whole tensors, and what it keeps stays."""
    x = library.ones(2, 3, requires_grad=True)
    y = x * 1
    y.retain_grad()
    kept: list[Any] = []
    y.register_hook(kept.append)
    first, last = y[0], y[1]
    first.grad_fn.register_hook(lambda into, out: kept.extend(into))
    (first * 2 + last * 3).sum().backward(retain_graph=True)
    kept += [y.grad, last.grad_fn(library.ones(3))]
    (first * 2 + y[1] * 3).sum().backward()
    return [t.tolist() for t in (*kept, x.grad)]


def test_hooks_see_tensors_and_what_they_keep_stays() -> None:
    assert seen(skimp) == seen(torch)


def test_a_gradient_that_somebody_holds_is_not_written_to() -> None:
    x = skimp.ones(2, 3, requires_grad=True)
    y = x * 1
    given = skimp.ones(2, 3)
    skimp.autograd.backward([y, y[0]], [given, skimp.ones(3)])
    assert given.tolist() == [[1.0] * 3] * 2
    assert x.grad.tolist() == [[2.0] * 3, [1.0] * 3]


def test_under_anomaly_mode_and_twice_differentiated() -> None:
    found = []
    for library in (torch, skimp):
        x = library.ones(3, 3, requires_grad=True)
        y = x * x
        z = (y[0] * y[1] * y[:, 1:].sum()).sum()
        (g,) = library.autograd.grad(z, x, create_graph=True)
        with library.autograd.set_detect_anomaly(True):
            (g[0] * g[:, 1]).sum().backward()
        found.append((g.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


def test_a_negative_zero_is_found_in_every_type() -> None:
    for dtype in (skimp.float16, skimp.bfloat16, skimp.float32, skimp.float64, skimp.complex64):
        t = skimp.zeros(5, dtype=dtype)
        assert not has_negative_zero(t)
        t[3] = -0.0
        assert has_negative_zero(t)
    assert not has_negative_zero(skimp.zeros(0))


def test_parts_of_a_type_that_nobody_adds_are_refused_as_in_pytorch() -> None:
    for library in (skimp, torch):
        x: Any = library.ones(2, 3).to(library.float8_e4m3fn).requires_grad_()
        total = x[0].to(library.float32).sum() + x[1].to(library.float32).sum()
        with pytest.raises(NotImplementedError, match="not implemented for 'Float8_e4m3fn'"):
            total.backward()
