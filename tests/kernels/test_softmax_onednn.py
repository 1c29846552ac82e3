"""The gradient of softmax by oneDNN: as exact as NumPy's, and a row's bits are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import onednn, softmax_onednn
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]


def _rows(rows: int, n: int) -> tuple[Array, Array]:
    """A gradient, and what softmax gave."""
    numbers = np.random.default_rng(0)
    y = np.exp(numbers.standard_normal((rows, n), dtype="f4"))
    return numbers.standard_normal((rows, n), dtype="f4"), y / y.sum(1, keepdims=True)


@settings(max_examples=30)
@given(
    n=st.integers(1, 300), size=st.integers(1 << 15, 1 << 18), cut=st.floats(0, 1),
    threads=st.integers(2, 4),
)  # fmt: skip
def test_values_and_bits_however_rows_are_cut(n: int, size: int, cut: float, threads: int) -> None:
    g, y = _rows(-(-size // n), n)
    whole, parts, again = [np.empty_like(g) for _ in range(3)]
    with config.using(threads=threads):
        softmax_onednn.backward(g, y, whole)
    exact = y * (g.astype("f8") - (g.astype("f8") * y).sum(1, keepdims=True))
    assert np.abs(whole - exact).max() <= 1e-6 * np.abs(exact).max() + 1e-7
    with config.using(threads=1):
        at = int(cut * len(g))
        for part in (slice(0, at), slice(at, None)):
            softmax_onednn.backward(g[part], y[part], parts[part])
        softmax_onednn.backward(np.asfortranarray(g), np.asfortranarray(y), again)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(again, whole)
    softmax_onednn.backward(g, y, g)  # which takes the place of what it reads
    np.testing.assert_array_equal(g, whole)


def test_what_is_no_number_stays_in_its_row() -> None:
    g, y = _rows(1024, 64)
    g[1, 3], g[2, 3], y[3, 5] = np.nan, np.inf, np.nan
    y[4], g[4, 3] = 0, np.inf
    out = np.empty_like(g)
    softmax_onednn.backward(g, y, out)
    assert np.isnan(out[[1, 3, 4]]).all()
    assert np.isnan(out[2, 3])
    assert np.isfinite(np.delete(out, [1, 2, 3, 4], 0)).all()


@pytest.mark.parametrize("shape", [(48, 64, 64), (600, 500), (300, 7, 64)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bits_whatever_the_settings(shape: tuple[int, ...], dtype: str) -> None:
    numbers = [np.random.default_rng(i).standard_normal(shape, dtype="f4") for i in (0, 1)]
    found = []
    modes: list[dict[str, Any]] = [{"defer": d} for d in ("auto", "never", "always")]
    for setting in (*modes, {"threads": 1}, {"block": 1000}, {"small_below": 16}):
        with config.using(**setting):
            x = skimp.tensor(numbers[0], dtype=getattr(skimp, dtype), requires_grad=True)
            y = skimp.softmax(x * 2, -1)
            y.backward(skimp.tensor(numbers[1], dtype=getattr(skimp, dtype)) * 3)
            found.append(x.grad.float().numpy())
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    t = torch.tensor(numbers[0], dtype=getattr(torch, dtype), requires_grad=True)
    torch.softmax(t * 2, -1).backward(torch.tensor(numbers[1], dtype=getattr(torch, dtype)) * 3)
    assert t.grad is not None
    close = 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(found[0], t.grad.float().numpy(), close, close)
