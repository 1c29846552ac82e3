"""LAPACK by NumPy's ufuncs answers, and refuses, what NumPy's functions do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skimp._kernels import lapack

PAIRS = [
    (lapack.inverse, np.linalg.inv),
    (lapack.lower, np.linalg.cholesky),
    (lapack.determinant, np.linalg.det),
    (lambda a: lapack.solution(a, a[..., :2]), lambda a: np.linalg.solve(a, a[..., :2])),
    (lambda a: lapack.solution(a, a[..., 0].ravel()[:3]),
     lambda a: np.linalg.solve(a, a[..., 0].ravel()[:3])),
]  # fmt: skip


def outcome(f: Any, a: Any) -> Any:
    try:
        return f(a)
    except np.linalg.LinAlgError:
        return "refused"


@pytest.mark.parametrize(("ours", "numpys"), PAIRS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
@pytest.mark.parametrize("spoilt", ["", "singular", "nan"])
def test_as_numpys(ours: Any, numpys: Any, dtype: Any, shape: Any, spoilt: str) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    a = x @ x.swapaxes(-1, -2).conj() + np.eye(3, dtype=dtype)
    if spoilt:
        a.reshape(-1, 3, 3)[-1] = {"singular": -1, "nan": np.nan}[spoilt]
    want, got = outcome(numpys, a), outcome(ours, a)
    assert type(got) is type(want)
    np.testing.assert_array_equal(got, want)
    assert isinstance(got, str) or got.dtype == dtype


def test_nothing_to_invert() -> None:
    assert lapack.inverse(np.ones((0, 3, 3))).shape == (0, 3, 3)
    assert lapack.lower(np.ones((0, 0))).shape == (0, 0)


@pytest.mark.parametrize("at", [(0, 0), (1, 2), (3, 1)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_no_result_forgets_that_its_matrix_has_a_nan(at: Any, batch: Any) -> None:
    a = np.random.default_rng(1).normal(size=(*batch, 4, 4))
    a.reshape(-1, 4, 4)[-1][at] = np.nan
    found = [lapack.inverse(a), lapack.solution(a, a), lapack.solution(a, np.ones(4))]
    for made in found:
        rows = made.reshape(3 if batch else 1, -1)
        assert np.isnan(rows[-1]).all()
        assert not np.isnan(rows[:-1]).any()
