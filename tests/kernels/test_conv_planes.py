"""Depthwise convolution: its values, sums of blocks, bits that don't depend on who does them, and
what is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import conv_planes
from skimp._kernels.im2col import Window, out_size
from tests.kernels.windows import by_pytorch, numbers, same_bits_on_two_threads, windows

Array = np.ndarray[Any, Any]


def ours(x: Array, weight: Array, bias: Array, g: Array, w: Window) -> list[Array]:
    """The result and the gradients of weight and bias."""
    y, to_weight, to_bias = np.empty_like(g), *map(np.empty_like, (weight[:, 0], bias))
    conv_planes.forward(x, weight[:, 0], bias, y, w)
    assert conv_planes.weights(g, x, to_weight, w, to_bias)
    return [y, to_weight[:, None], to_bias]


def compare(w: Window, n: int, channels: int, seed: int) -> None:
    x, weight = numbers(seed, n, channels, *w.size), numbers(1, channels, 1, *w.kernel)
    bias, g = numbers(2, channels), numbers(3, n, channels, *w.out)
    wanted = by_pytorch(x, weight, bias, g, w, channels)
    del wanted[1]
    for a, b in zip(ours(x, weight, bias, g, w), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@given(windows(2, 3), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_values_and_gradients_are_pytorchs(w: Window, n: int, channels: int, seed: int) -> None:
    compare(w, n, channels, seed)


@pytest.mark.parametrize(("block", "run"), [(1, 1), (700, 300)])
@given(windows(2, 3), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_so_they_are_by_blocks(
    block: int, run: int, w: Window, n: int, channels: int, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_planes, "_BLOCK", block)
        patch.setattr(conv_planes, "_RUN", run)
        compare(w, n, channels, seed)


def window(size: int, kernel: int, step: int) -> Window:
    sizes = (size, size), (kernel, kernel), (step, step), (kernel // 2, kernel // 2), (1, 1)
    return Window(*sizes, out_size(*sizes))


@pytest.mark.parametrize("step", [1, 2])
def test_threads_make_the_same_bits(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    w = window(40, 3, step)
    x, weight = numbers(0, 8, 48, 40, 40), numbers(1, 48, 1, 3, 3)
    bias, g = numbers(2, 48), numbers(3, 8, 48, *w.out)
    monkeypatch.setattr(conv_planes, "_LONG", 0)
    same_bits_on_two_threads(lambda: ours(x, weight, bias, g, w))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [(0, 0), (0, 4), (2, 3), (4, 4)])
@pytest.mark.parametrize("step", [1, 2])
def test_what_is_not_finite_reaches_those_that_see_it(
    value: float, place: tuple[int, int], step: int
) -> None:
    def made(library: Any) -> list[Array]:
        x, weight = numbers(0, 2, 3, 5, 5), numbers(1, 3, 1, 3, 3)
        x[(0, 1, *place)] = value
        leaves = [library.tensor(a, requires_grad=True) for a in (x, weight)]
        convolve = library.nn.functional.conv2d
        y = convolve(*leaves, stride=step, padding=0, groups=3)
        (g,) = library.autograd.grad(y.sum(), leaves[1])
        return [np.asarray(y.detach()), np.asarray(g)]

    for a, b in zip(made(skimp), made(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_a_turned_result_and_a_strided_input_give_the_same_bits() -> None:
    w = window(16, 3, 1)
    x, weight = numbers(0, 2, 8, 16, 16), numbers(1, 8, 3, 3)
    plain, turned = np.empty((2, 8, 16, 16)), np.empty((2, 16, 16, 8)).transpose(0, 3, 1, 2)
    conv_planes.forward(x, weight, None, plain, w)
    conv_planes.forward(np.asfortranarray(x), weight, None, turned, w)
    np.testing.assert_array_equal(plain, turned)


@pytest.mark.parametrize(
    ("shape", "size", "outputs", "suits"),
    [
        ((2, 8, 1), 32, 1, True),
        ((2, 1, 8), 32, 1, False),  # all channels together
        ((2, 8, 2), 32, 1, False),
        ((2, 8, 1), 32, 2, False),
        ((2, 8, 1), 1024, 1, False),  # a plane is longer than scratch memory
    ],
)
def test_what_suits(shape: Any, size: int, outputs: int, suits: bool) -> None:
    x = np.broadcast_to(np.float32(0), (*shape, size, size))
    assert conv_planes.suits(window(size, 3, 1), x, outputs, x, None) == suits
    assert not conv_planes.suits(window(size, 1, 1), x, outputs, x)  # nothing is gathered
    assert not conv_planes.suits(window(size, 3, 1), x.astype(np.float16), outputs)
    assert not conv_planes.suits(window(size, 3, 1), x, outputs, np.zeros(1))
