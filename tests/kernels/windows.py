"""Windows of convolutions, numbers for them, and what PyTorch makes of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from skimp._kernels.im2col import Window, out_size
from skimp.config import config

Array = np.ndarray[Any, Any]


@st.composite
def windows(draw: Any, dims: int, steps: int) -> Window:
    """Of `dims` to three dims, with steps of up to so many."""
    nd = draw(st.integers(dims, 3))
    size = tuple(draw(st.integers(1, 9)) for _ in range(nd))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(nd))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(nd))
    stride = tuple(draw(st.integers(1, steps)) for _ in range(nd))
    padding = tuple(
        draw(st.integers(max(0, -(-((k - 1) * d + 1 - s) // 2)), 4))
        for s, k, d in zip(size, kernel, dilation, strict=True)
    )
    return Window(
        size, kernel, stride, padding, dilation, out_size(size, kernel, stride, padding, dilation)
    )


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def by_pytorch(
    x: Array, weight: Array, bias: Array, g: Array, w: Window, groups: int = 1
) -> list[Array]:
    """The result and the gradients of input, weight and bias."""
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, weight, bias)]
    convolve = getattr(torch.nn.functional, f"conv{len(w.size)}d")
    y = convolve(*leaves, stride=w.stride, padding=w.padding, dilation=w.dilation, groups=groups)
    y.backward(torch.tensor(g))
    return [y.detach().numpy(), *[t.grad.numpy() for t in leaves if t.grad is not None]]


def same_bits_on_two_threads(made: Callable[[], list[Array]]) -> None:
    with config.using(threads=1):
        alone = made()
    with config.using(threads=2, threads_from=0):
        shared = made()
    for a, b in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(a, b)
