"""A rectifier's gradient that batch_norm's backward makes beside its sums: the bits of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import channels_onednn
from skimp._ops.nn import channel_sums
from skimp.config import config

Array = np.ndarray[Any, Any]
# images as runs of short rows, channels of an image apart, long rows
SHAPES = [(20, 6, 4, 5), (3, 5, 20, 20), (1, 4, 90, 70)]
RECTIFIERS: dict[str, Any] = {
    "relu": lambda lib, y: lib.nn.functional.relu(y),
    "relu6": lambda lib, y: lib.nn.functional.relu6(y),
    "hardtanh": lambda lib, y: lib.nn.functional.hardtanh(y, -0.7, 0.4),
    "threshold": lambda lib, y: lib.nn.functional.threshold(y, 0.3, -1.0),
    "leaky": lambda lib, y: lib.nn.functional.leaky_relu(y, 0.1),
    "silu": lambda lib, y: lib.nn.functional.silu(y),
    "hardswish": lambda lib, y: lib.nn.functional.hardswish(y),
    "gelu": lambda lib, y: lib.nn.functional.gelu(y),
    "elu": lambda lib, y: lib.nn.functional.elu(y),
    "mish": lambda lib, y: lib.nn.functional.mish(y),
    "softplus": lambda lib, y: lib.nn.functional.softplus(y, 2.0, 1.0),
    "several": lambda lib, y: lib.nn.functional.relu(
        lib.nn.functional.hardtanh(y + 0.1, -0.7, 0.4)
    ),
}


def _gradients(lib: Any, x: Array, g: Array, name: str) -> list[Array]:
    """Gradients of input, weight and bias."""
    line = [np.linspace(-0.5, 2, x.shape[1]), np.linspace(-1, 1, x.shape[1])]
    made = [lib.tensor(a, dtype=lib.float32).requires_grad_() for a in (x, *line)]
    y = RECTIFIERS[name](lib, lib.nn.functional.batch_norm(made[0], None, None, *made[1:], True))
    return [each.numpy() for each in lib.autograd.grad(y, made, lib.tensor(g))]


def _numbers(shape: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x, g = [rng.standard_normal(shape, dtype=np.float32) for _ in range(2)]
    x[:, 1] += 10  # far from 0
    return x, g


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", RECTIFIERS)
def test_bits_are_those_of_every_way(
    shape: tuple[int, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, g = _numbers(shape)
    g[0, 0, 0, :3] = np.inf, np.nan, -0.0
    x[0, 2, 0, 0] = np.nan
    seen: list[Any] = []
    usual = channel_sums.rectified
    monkeypatch.setattr(
        channel_sums, "rectified", lambda source: seen.append(usual(source)) or seen[-1]
    )
    found = []
    for defer in ("always", "never"):
        for threads in (1, 2):
            for most in (1 << 18, 1 << 9):
                monkeypatch.setattr(channel_sums, "_WRITTEN", most)
                with config.using(defer=defer, threads=threads, threads_from=0):
                    found.append(_gradients(skimp, x, g, name))
    assert any(seen) is (name != "several")
    monkeypatch.setattr(channel_sums, "rectified", lambda source: None)
    with config.using(defer="always"):
        found.append(_gradients(skimp, x, g, name))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", RECTIFIERS)
def test_gradients_are_pytorchs(shape: tuple[int, ...], name: str) -> None:
    x, g = _numbers(shape)
    wanted = _gradients(torch, x, g, name)
    with config.using(defer="always"):
        found = _gradients(skimp, x, g, name)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * max(1, float(np.abs(b).max())))


def test_numbers_that_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an image of their own beside short rows, where NumPy makes the line."""
    x, g = _numbers((40, 16, 16, 16))
    found = []
    for takes in (channels_onednn.takes, lambda dtype: False):
        monkeypatch.setattr(channels_onednn, "takes", takes)
        with config.using(defer="auto"):
            found.append(_gradients(skimp, x, g, "relu6"))
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", ["relu6", "leaky"])
def test_nothing_but_the_result_is_made(name: str) -> None:
    x = skimp.randn(16, 32, 32, 32, requires_grad=True)
    g = skimp.ones(16, 32, 32, 32)
    with config.using(defer="auto"):
        y = RECTIFIERS[name](skimp, skimp.nn.functional.batch_norm(x, None, None, training=True))
        before = skimp.cuda.memory_allocated()
        skimp.cuda.reset_peak_memory_stats()
        y.backward(g)
        assert skimp.cuda.max_memory_allocated() - before < 1.1 * g.nbytes
