"""Convolution by rows: its values, sums of blocks, and bits that don't depend on who does them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from skimp._kernels import conv_rows, gemm
from skimp._kernels.im2col import Window
from tests.kernels.windows import by_pytorch, numbers, same_bits_on_two_threads, windows

Array = np.ndarray[Any, Any]


def ours(x: Array, weight: Array, bias: Array, g: Array, w: Window) -> list[Array]:
    y, to_x, to_weight, to_bias = np.empty_like(g), *map(np.empty_like, (x, weight, bias))
    again, to_turned, whole = np.empty_like(x), *map(np.empty_like, (weight, bias))
    conv_rows.forward(x, weight, bias, y, w)
    conv_rows.weights(g, x, to_weight, w, to_bias)
    padding = tuple(r - 1 - p for r, p in zip(w.reach, w.padding, strict=True))
    if min(padding) >= 0:
        back = Window(w.out, w.kernel, w.stride, padding, w.dilation, w.size)
        turned = np.flip(weight.swapaxes(0, 1), tuple(range(2, weight.ndim)))
        into = np.empty(turned.shape)
        conv_rows.forward(g, turned, None, to_x, back)
        conv_rows.forward_and_weights(g, turned, again, x, into, back, whole)
        np.testing.assert_array_equal(again, to_x)
        np.testing.assert_allclose(whole, to_bias, rtol=1e-9, atol=1e-9)
        to_turned[...] = np.flip(into, tuple(range(2, weight.ndim))).swapaxes(0, 1)
        np.testing.assert_allclose(to_turned, to_weight, rtol=1e-9, atol=1e-9)
        return [y, to_x, to_weight, to_bias]
    return [y, to_weight, to_bias]


@given(windows(1, 1), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_a_convolution_and_its_gradients_are_pytorchs(
    w: Window, n: int, channels: int, outputs: int, seed: int
) -> None:
    x, weight = numbers(seed, n, channels, *w.size), numbers(1, outputs, channels, *w.kernel)
    bias, g = numbers(2, outputs), numbers(3, n, outputs, *w.out)
    mine, wanted = ours(x, weight, bias, g, w), by_pytorch(x, weight, bias, g, w)
    if len(mine) < len(wanted):
        del wanted[1]
    for a, b in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scratch", [1, 700])
@given(windows(1, 1), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_so_they_are_by_parts_of_images(scratch: int, w: Window, n: int, seed: int) -> None:
    x, weight = numbers(seed, n, 2, *w.size), numbers(1, 3, 2, *w.kernel)
    bias, g = numbers(2, 3), numbers(3, n, 3, *w.out)
    wanted = by_pytorch(x, weight, bias, g, w)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_rows, "SCRATCH", scratch)
        mine = ours(x, weight, bias, g, w)
    if len(mine) < len(wanted):
        del wanted[1]
    for a, b in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16])
def test_threads_make_the_same_bits(n: int) -> None:
    w = Window((40, 40), (3, 3), (1, 1), (1, 1), (1, 1), (40, 40))
    x, weight = numbers(0, n, 16, 40, 40), numbers(1, 8, 16, 3, 3)
    bias, g = numbers(2, 8), numbers(3, n, 8, 40, 40)
    same_bits_on_two_threads(lambda: ours(x, weight, bias, g, w))


def test_few_images_are_cut_into_parts_that_threads_share() -> None:
    for n, size, count in (
        (1, 64, 4),
        (2, 64, 4),
        (3, 64, 12),
        (4, 64, 4),
        (16, 64, 8),  # scratch memory holds two images
        (1, 20, 1),
        (16, 20, 4),  # and more than four
    ):
        w = Window((size, size), (3, 3), (1, 1), (1, 1), (1, 1), (size, size))
        found = conv_rows._blocks(w, 16, n)
        assert len(found) == count
        assert sum(b.lines * (b.images.stop - b.images.start) for b in found) == n * size


@pytest.mark.parametrize(
    ("shape", "kernel", "suits"),
    [
        ((2, 1, 8, 64, 64), (3, 3), True),
        ((2, 1, 8, 64, 64), (1, 1), False),  # nothing to gather
        ((2, 1, 64, 2560), (3,), False),  # one dim: there are no inner taps
        ((2, 1, 2, 64, 64), (3, 3), False),  # BLAS is slow
        ((2, 1, 512, 8, 8), (3, 3), False),  # a call for each image would cost more
        ((2, 1, 8, 16, 16), (3, 3), False),  # likewise: products are small
        ((2, 2, 8, 64, 64), (3, 3), False),
    ],
)
def test_what_suits(shape: Any, kernel: Any, suits: bool) -> None:
    size, ones = shape[3:], (1,) * len(kernel)
    padding = tuple(k // 2 for k in kernel)
    w = Window(size, kernel, ones, padding, ones, size)
    x = np.zeros(shape, np.float32)
    weight = np.zeros((shape[1], 32, shape[2], *kernel), np.float32)
    assert conv_rows.suits(w, x, 32, weight, None) == suits
    assert not conv_rows.suits(w, x.astype(np.float16), 32, weight)
    assert not conv_rows.suits(w, x, 32, weight.astype(np.float64))


def test_a_call_for_several_images_has_the_bits_of_one_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = Window((32, 32), (3, 3), (1, 1), (1, 1), (1, 1), (32, 32))
    x, weight = numbers(0, 9, 16, 32, 32), numbers(1, 32, 16, 3, 3)
    bias, g = numbers(2, 32), numbers(3, 9, 32, 32, 32)
    assert 1 < conv_rows._blocks(w, 16, 9)[0].images.stop < 9
    together = ours(x, weight, bias, g, w)
    monkeypatch.setattr(gemm, "_gemms_of", lambda kind: None)
    for one, other in zip(together, ours(x, weight, bias, g, w), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_turned_result_and_a_strided_input_give_the_same_bits() -> None:
    w = Window((16, 16), (3, 3), (1, 1), (1, 1), (1, 1), (16, 16))
    x, weight = numbers(0, 2, 8, 16, 16), numbers(1, 4, 8, 3, 3)
    plain, turned = np.empty((2, 4, 16, 16)), np.empty((2, 16, 16, 4)).transpose(0, 3, 1, 2)
    conv_rows.forward(x, weight, None, plain, w)
    conv_rows.forward(np.asfortranarray(x), weight, None, turned, w)
    np.testing.assert_array_equal(plain, turned)
