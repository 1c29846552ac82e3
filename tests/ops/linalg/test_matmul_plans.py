"""Products by plans: those of factors that lie in any way, told by address or as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import products
from skimp._kernels.products import FIRST, NEITHER, SECOND
from skimp._ops.linalg.matmul_plans import planned
from skimp.config import config

LIES = ("rows", "columns", "beginning", "gaps", "read-only")


def _matrices(batch: tuple[int, ...], rows: int, columns: int, lies: str, seed: int) -> Any:
    """A tensor of matrices of one of these kinds, with NumPy's copy of it."""
    shape = (*batch, columns, rows) if lies == "columns" else (*batch, rows, columns)
    if lies == "beginning":
        shape = (3, *shape)
    elif lies == "gaps":
        shape = (*shape[:-1], 2 * columns)
    a = np.random.default_rng(seed).standard_normal(shape, dtype="f4")
    a.flags.writeable = lies != "read-only"
    t = skimp.from_numpy(a)
    if lies == "columns":
        return t.transpose(-1, -2), a.swapaxes(-1, -2)
    if lies == "beginning":
        return t[1], a[1]
    return (t[..., :columns], a[..., :columns]) if lies == "gaps" else (t, a)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@settings(max_examples=30)
@given(
    batch=st.sampled_from([(), (3,), (2, 2)]), sizes=st.tuples(*[st.integers(1, 200)] * 3),
    one=st.sampled_from(LIES), other=st.sampled_from(LIES),
    flipped=st.sampled_from([FIRST, SECOND, NEITHER]), small=st.sampled_from([1 << 17, 64]),
)  # fmt: skip
def test_values_however_factors_lie(
    batch: tuple[int, ...], sizes: tuple[int, int, int], one: str, other: str, flipped: int,
    small: int,
) -> None:  # fmt: skip
    m, k, n = sizes
    first, second = (k, m) if flipped == FIRST else (m, k), (n, k) if flipped == SECOND else (k, n)
    with config.using(small_below=small):
        x, a = _matrices(batch, *first, one, 0)
        y, b = _matrices(batch, *second, other, 1)
        found = planned(x, y, flipped)
        assert found is not None
        a = a.swapaxes(-1, -2) if flipped == FIRST else a
        b = b.swapaxes(-1, -2) if flipped == SECOND else b
        want = a.astype("f8") @ b
        assert tuple(found.shape) == want.shape
        assert np.abs(found.numpy() - want).max() <= 3e-6 * k
        by_arrays = np.empty(want.shape, "f4")
        products.product(a, b, by_arrays)
        np.testing.assert_array_equal(found.numpy(), by_arrays)


def test_a_storage_that_became_too_small_is_refused() -> None:
    x, w = skimp.randn(600, 600), skimp.randn(600, 600)
    x.untyped_storage().resize_(4000)
    for product in (lambda: x @ w, lambda: w @ x, lambda: skimp.nn.functional.linear(x, w)):
        with pytest.raises(RuntimeError, match="out of bounds for storage of size 4000"):
            product()


def test_middle_sized_results_are_arrays_at_once() -> None:
    """What comes next needs no other look at them."""
    with skimp.config.using(defer="auto"):
        x, w = skimp.randn(300, 200), skimp.randn(400, 200)
        made = skimp.nn.functional.linear(x, w)
        assert config.small_below > 300 * 400
        assert made._np is not None
    want = torch.nn.functional.linear(torch.tensor(x.numpy()), torch.tensor(w.numpy()))
    np.testing.assert_allclose(made.numpy(), want, rtol=1e-4, atol=1e-4)
