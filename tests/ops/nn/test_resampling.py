"""Resampling by weights works on a few rows at a time: the same bits, and little beside results;
and PyTorch's, where sizes stay or are none.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.functional import both, randn

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


def test_a_dim_that_keeps_its_size_stays_whatever_the_factor() -> None:
    x = randn(1, 2, 7, 3, grad=True)  # 3 times 1.3 is 3
    both("interpolate", x, None, (2.0, 1.3), mode="bilinear")


@pytest.mark.parametrize("nd", [1, 2, 3])
def test_what_holds_nothing_is_refused_in_pytorchs_words(nd: int) -> None:
    for shape, size in (((1, 2, *(3,) * nd), 0), ((1, 0, *(3,) * nd), 2)):
        said = []
        for t in (torch, skimp):
            with pytest.raises(RuntimeError) as refused:
                t.nn.functional.interpolate(t.zeros(shape), size=size)
            said.append(str(refused.value).split("\n")[0])
        assert said[0] == said[1]
