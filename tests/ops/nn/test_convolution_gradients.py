"""The gradients of a convolution's input and weight from one gathering of columns (im2col), against
PyTorch and against each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp.config import config

Arrays = list[np.ndarray]


def _grads(lib: Any, arrays: Arrays, g: np.ndarray, wanted: str, *steps: Any) -> Arrays:
    made = [lib.tensor(a) for a in arrays]
    for t, name in zip(made, "xwb", strict=True):
        t.requires_grad_(name in wanted)
    y = getattr(lib.nn.functional, f"conv{arrays[0].ndim - 2}d")(*made, *steps)
    y.backward(lib.tensor(g))
    return [t.grad.numpy() for t in made if t.grad is not None]


def _sample(seed: int, x: tuple[int, ...], w: tuple[int, ...], *steps: Any) -> tuple[Arrays, Any]:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(s, dtype=np.float32) for s in (x, w, w[:1])]
    conv = getattr(torch.nn.functional, f"conv{len(x) - 2}d")
    out = conv(*[torch.tensor(a) for a in arrays], *steps).shape
    return arrays, rng.standard_normal(tuple(out), dtype=np.float32)


@given(st.data(), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_both_gradients(data: Any, nd: int) -> None:
    """Few and many channels, padding up to more than the kernel's reach, whole images and parts."""
    draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(nd))  # noqa: E731
    ci, co = data.draw(st.sampled_from([3, 16, 33])), data.draw(st.sampled_from([2, 16, 40]))
    kernel, padding, dilation = draw(1, 3), draw(0, 3), draw(1, 2)
    size = tuple(n + (k - 1) * d for n, k, d in zip(draw(1, 9), kernel, dilation, strict=True))
    n = data.draw(st.integers(1, 6))
    stride = data.draw(st.sampled_from([1, 1, 1, 2]))
    steps = (stride, padding, dilation)
    arrays, g = _sample(n, (n, ci, *size), (co, ci, *kernel), *steps)
    theirs, ours = [_grads(lib, arrays, g, "xwb", *steps) for lib in (torch, skimp)]
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b, a, atol=3e-5 * max(1, np.abs(a).max()))


@pytest.mark.parametrize("wanted", ["xw", "x", "w", "b", "wb"])
def test_only_what_is_wanted(wanted: str) -> None:
    arrays, g = _sample(0, (5, 16, 12, 12), (24, 16, 3, 3), 1, 1)
    theirs, ours = [_grads(lib, arrays, g, wanted, 1, 1) for lib in (torch, skimp)]
    assert len(ours) == len(wanted)
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-3)


@pytest.mark.parametrize("size", [(4, 4), (7, 5)])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_kernel_as_large_as_the_image(size: tuple[int, int], padding: int) -> None:
    """Few places, each of which sees nearly everything."""
    arrays, g = _sample(0, (3, 20, *size), (24, 20, *size), 1, padding)
    theirs, ours = [_grads(lib, arrays, g, "xwb", 1, padding) for lib in (torch, skimp)]
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-3)


@pytest.mark.parametrize("stride", [1, 2])  # of two, input's and weight's go side by side
def test_bits_do_not_depend_on_threads(stride: int) -> None:
    arrays, g = _sample(0, (33, 16, 14, 14), (48, 16, 3, 3), stride, 1)
    found, before = [], skimp.get_num_threads()
    try:
        for threads in (1, 2, 3):
            skimp.set_num_threads(threads)  # BLAS's too
            with config.using(threads_from=0):
                found.append([a.tobytes() for a in _grads(skimp, arrays, g, "xwb", stride, 1)])
    finally:
        skimp.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_rows_of_large_images() -> None:
    """Images of which a block holds only some lines: their padding differs from block to block."""
    arrays, g = _sample(0, (2, 16, 150, 140), (20, 16, 3, 3), 1, 2)
    theirs, ours = [_grads(lib, arrays, g, "xwb", 1, 2) for lib in (torch, skimp)]
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b, a, atol=2e-5 * np.abs(a).max())


def test_second_derivatives() -> None:
    arrays, g = _sample(1, (2, 16, 6, 6), (17, 16, 3, 3), 1, 1)
    found = []
    for lib in (torch, skimp):
        x, w, b = [lib.tensor(a).requires_grad_() for a in arrays]
        y = lib.nn.functional.conv2d(x, w, b, 1, 1)
        first = lib.autograd.grad(y, (x, w), lib.tensor(g), create_graph=True)
        total = (first[0] * first[0]).sum() + (first[1] * w).sum()
        found.append([t.numpy() for t in lib.autograd.grad(total, (x, w))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4 * np.abs(a).max())
