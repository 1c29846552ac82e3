"""Functions of a number by oneDNN: PyTorch's bits, wherever the number stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import skimp
from skimp._kernels import elementwise_onednn, onednn
from skimp._kernels.elementwise_onednn import GELU, GELU_TANH
from skimp._kernels.threads import at_once
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]
LENGTHS = [2, 5, 511, 512, 513, 1000, 4096, (1 << 17) + 1, 3 * (1 << 17) + 777]


def _numbers(length: int, seed: int) -> Array:
    made = 4 * np.random.default_rng(seed).standard_normal(length, dtype="f4")
    made[: min(length, 4)] = [0, -0.0, 30, -30][:length]
    return made


@pytest.mark.parametrize("length", LENGTHS)
def test_gelu_has_the_bits_of_pytorch(length: int) -> None:
    x, g = _numbers(length, 0), _numbers(length, 1)
    t, s = torch.tensor(x, requires_grad=True), skimp.tensor(x, requires_grad=True)
    want, got = torch.nn.functional.gelu(t), skimp.nn.functional.gelu(s)
    want.backward(torch.tensor(g))
    got.backward(skimp.tensor(g))
    np.testing.assert_array_equal(got.detach().numpy(), want.detach().numpy())
    assert t.grad is not None
    np.testing.assert_array_equal(s.grad.numpy(), t.grad.numpy())


@pytest.mark.parametrize("function", [GELU, GELU_TANH])
@given(length=st.integers(1, 5000), start=st.integers(0, 40), gap=st.integers(1, 3))
def test_a_number_has_the_same_bits_wherever_it_stands(
    function: int, length: int, start: int, gap: int
) -> None:
    x, g = _numbers(6000, 0), _numbers(6000, 1)
    whole, back = np.empty_like(x), np.empty_like(x)
    assert elementwise_onednn.forward(function, x, whole)
    assert elementwise_onednn.backward(function, g, x, back)
    some = slice(start, start + length, gap)
    out = np.empty(len(x), "f4")[some]
    assert elementwise_onednn.forward(function, x[some], out)
    np.testing.assert_array_equal(out, whole[some])
    assert elementwise_onednn.backward(function, g[some], x[some], out)
    np.testing.assert_array_equal(out, back[some])
    row, one = x[some].copy(), np.broadcast_to(g[:1], x[some].shape)
    elementwise_onednn.backward(function, one, row, row)  # which takes the place of what it reads
    elementwise_onednn.backward(function, one.copy(), x[some], out)
    np.testing.assert_array_equal(out, row)


@pytest.mark.parametrize("function", [GELU, GELU_TANH])
def test_a_team_gives_the_same_bits(function: int) -> None:
    x, g = _numbers((1 << 20) + 70_000, 0), _numbers((1 << 20) + 70_000, 1)
    found = []
    for threads in (1, 2, 3, 5):
        with config.using(threads=threads):
            y, back = np.empty_like(x), np.empty_like(x)
            assert elementwise_onednn.forward(function, x, y)
            assert elementwise_onednn.backward(function, g, x, back)
            found.append((y, back))
    for y, back in found[1:]:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(back, found[0][1])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_bits_whatever_the_settings(approximate: str) -> None:
    found = []
    settings: list[dict[str, Any]] = [{"defer": d} for d in ("auto", "never", "always")]
    for setting in (*settings, {"threads": 1}, {"block": 1000}):
        with config.using(**setting):
            x = skimp.tensor(_numbers(300_000, 0).reshape(500, 600), requires_grad=True)
            y = skimp.nn.functional.gelu((x.t() * 2 + 1), approximate=approximate)
            (y * 3).sum().backward()
            found.append((y.detach().numpy(), x.grad.numpy()))
    for y, g in found[1:]:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(g, found[0][1])


def test_what_it_is_not_asked_for() -> None:
    x = _numbers(100, 0)
    for one, out in ((x.astype("f8"), np.empty(100)), (x, np.empty(100, "f2"))):
        assert not elementwise_onednn.forward(GELU, one, out)


@pytest.mark.parametrize("function", [GELU, GELU_TANH])
@pytest.mark.parametrize("length", [512, (1 << 17) + (1 << 16) + 48, 3 << 17])
def test_calls_over_what_they_read_have_the_same_bits(function: int, length: int) -> None:
    x, g = _numbers(length, 0), _numbers(length, 1)
    y, back = np.empty_like(x), np.empty_like(x)
    assert elementwise_onednn.forward(function, x, y)
    assert elementwise_onednn.backward(function, g, x, back)
    for threads in (1, 2):
        with config.using(threads=threads):
            for over in range(3):
                own, of = x.copy(), g.copy()
                given, out = ((own, of), (own, of)[over]) if over < 2 else ((own,), own)
                made = elementwise_onednn.calls(function, given, out)
                assert made or threads > 1
                if made:
                    at_once(made)
                    np.testing.assert_array_equal(out, back if over < 2 else y)
