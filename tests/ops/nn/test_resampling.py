"""Resampling by weights works on a few rows at a time: the same bits, and little beside results."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import skimp

MIB = 1 << 20


def both_ways(x: Any, mode: str, size: int) -> tuple[Any, Any]:
    """The result, and the gradient of the sum of its squares."""
    x = x.clone().requires_grad_()
    y = skimp.nn.functional.interpolate(x, size=(size,) * (x.ndim - 2), mode=mode)
    (y * y).sum().backward()
    return y.detach().numpy(), x.grad.numpy()


# runs of few elements, of many, and of one
@pytest.mark.parametrize("size", [64, 200, 21])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_alone_and_together_have_the_same_bits(mode: str, size: int) -> None:
    skimp.manual_seed(0)
    x = skimp.randn(40 if size < 200 else 4, 4, 32, 32)
    y, gradient = both_ways(x, mode, size)
    for n in (0, len(x) - 1):
        alone = both_ways(x[n : n + 1], mode, size)
        np.testing.assert_array_equal(alone[0][0], y[n])
        np.testing.assert_array_equal(alone[1][0], gradient[n])


def test_what_it_takes_beside_its_result() -> None:
    """NumPy's temporaries, which nobody counts: of a result of 8 MiB they were 8 and more."""
    x = skimp.zeros(8, 16, 64, 64, requires_grad=True)
    tracemalloc.start()
    y = skimp.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
    y.data_ptr()
    forward = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    y.backward(skimp.ones_like(y))
    backward = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert forward < 2 * MIB
    assert backward < 2 * MIB
