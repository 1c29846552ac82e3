"""The order of integers: NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skimp._kernels.order import distinct, farthest, runs, stable_order


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("count", [0, 1, 300, 511, 512, 5000])
@pytest.mark.parametrize("size", [1, 2, 1000, 1 << 16, (1 << 16) + 1, 1 << 20, 1 << 31])
def test_equal_integers_keep_their_order(size: int, count: int, dtype: Any) -> None:
    draws = np.random.default_rng(count)
    places = draws.integers(0, size, count).astype(dtype)
    places[::3] = size - 1
    order = stable_order(places, size)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(order, np.argsort(places, kind="stable"))
    many = places.astype(np.int64) * 4
    np.testing.assert_array_equal(stable_order(many, 4 * size), order)  # to 2**33: as they are


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 40), (300, 20)])
def test_the_largest_position_is_found_and_a_negative_one_is_huge(
    shape: tuple[int, ...], dtype: Any
) -> None:
    places = np.random.default_rng(len(shape)).integers(0, 1 << 30, shape).astype(dtype)
    for each in (places, places.T, places[..., ::-1]):
        assert farthest(each) == places.max()
        assert type(farthest(each)) is int
    places.reshape(-1)[-1] = -1
    assert farthest(places) >= 1 << 31


def test_equal_places_in_order_are_runs() -> None:
    for places in ([3], [1, 1, 1], [0, 0, 2, 5, 5, 5, 6]):
        starts, counts = runs(np.array(places))
        given = [(places[i], n) for i, n in zip(starts.tolist(), counts.tolist(), strict=True)]
        assert given == [(p, places.count(p)) for p in sorted(set(places))]


@pytest.mark.parametrize("size", [1, 9, 1 << 14, 1 << 20])
@pytest.mark.parametrize("wrong", [None, -1, 1 << 40])
def test_distinct_ones_are_numpys(size: int, wrong: int | None) -> None:
    """By marks or sorted, and where some are not within."""
    given = np.random.default_rng(size)
    for n in (0, 1, 30):
        places = given.integers(0, size, n)
        if wrong is not None and n:
            places[n // 2] = wrong
        for one, other in zip(
            distinct(places, size), np.unique(places, return_inverse=True), strict=True
        ):
            np.testing.assert_array_equal(one, other)
