"""Averages of windows by oneDNN: NumPy's bits, or left to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skimp._kernels import onednn, pool, pool_onednn, teams
from skimp._kernels.pool import Pool

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]


def _windows(size: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...]) -> Pool:
    none, ones = (0,) * len(size), (1,) * len(size)
    places = [(n - k) // s + 1 for n, k, s in zip(size, kernel, stride, strict=True)]
    return Pool(size, kernel, stride, none, ones, tuple(places))


@pytest.mark.parametrize(
    ("planes", "size", "kernel", "stride"),
    [
        (70, (32, 32), (2, 2), (2, 2)),
        (576, (9, 11), (2, 2), (2, 3)),
        (300, (8, 8), (8, 8), (8, 8)),
        (33, (20, 17), (4, 4), (1, 2)),
        (40, (400,), (4,), (4,)),
        (17, (10, 8, 12), (2, 2, 2), (2, 2, 2)),
    ],
)
@pytest.mark.parametrize("team", [1, 2, 3])
def test_bits(
    planes: int, size: Any, kernel: Any, stride: Any, team: int, monkeypatch: Any
) -> None:
    x = np.random.default_rng(0).standard_normal((planes, *size), dtype="f4")
    x[3], x[4, 0], x[5, -1], x[6] = -0.0, np.nan, np.inf, 1e-42
    w, divisor = _windows(size, kernel, stride), np.array(float(np.prod(kernel)))
    want, got = [np.empty((planes, *w.out), "f4") for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(pool_onednn, "_LEAST", 1 << 40)
        pool.total(x, want, divisor, w)
    monkeypatch.setattr(pool_onednn, "SHARED", 1)
    monkeypatch.setattr(teams, "size", lambda threads: team)
    assert pool_onednn.average(x, got, divisor, w.kernel, w.stride)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[3]), np.signbit(want[3]))


def test_what_it_is_not_asked_for() -> None:
    x, out = np.zeros((64, 32, 32), "f4"), np.zeros((64, 16, 16), "f4")
    four = np.array(4.0)
    assert pool_onednn.average(x, out, four, (2, 2), (2, 2))
    assert not pool_onednn.average(x.astype("f8"), out, four, (2, 2), (2, 2))
    assert not pool_onednn.average(x.transpose(0, 2, 1), out, four, (2, 2), (2, 2))
    assert not pool_onednn.average(x, out, np.array(5.0), (2, 2), (2, 2))
    assert not pool_onednn.average(x, out[:, :10, :10].copy(), np.array(9.0), (3, 3), (3, 3))
    assert not pool_onednn.average(x[:2], out[:2], four, (2, 2), (2, 2))
