"""Rows that are merged into others have the bits of one element after the other."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from skimp._kernels import rows as rows_
from skimp._kernels.rows import add_slices, merge_rows, taking
from tests.support.peaks import peak_of

TYPES = ("f4", "f8", "f2", ml_dtypes.bfloat16, "c8", "i4", "i8", "u1", "?")
UFUNCS = (np.add, np.multiply, np.maximum, np.minimum)
# Places, rows, elements of a row: many and few for one place, several blocks, none at all.
SIZES = [(50, 300, 9), (5, 900, 8), (300, 200, 33), (1, 500, 8), (90, 3000, 64), (3, 10, 20000)]


def made(rng: Any, count: int, width: int, dtype: Any) -> Any:
    found = rng.standard_normal((count, width)) * 2
    found.reshape(-1)[::7] = -0.0
    return found.astype(dtype)


@pytest.mark.parametrize("sizes", [*SIZES, (7, 0, 9), (4, 30, 1), (4, 30, 0)])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("few", [0, 1 << 40])
def test_bits(sizes: tuple[int, int, int], dtype: Any, few: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(rows_, "_FEW", few)
    rng = np.random.default_rng(0)
    n, count, width = sizes
    places = rng.integers(0, n, count)
    for ufunc in UFUNCS[:2] if np.dtype(dtype).kind == "c" else UFUNCS:
        got = made(rng, n, width, dtype)
        want, rows = got.copy(), made(rng, count, width, dtype)
        merge_rows(got, places, taking(rows), ufunc)
        for place, row in zip(places, rows, strict=True):
            want[place] = ufunc(want[place], row)
        assert got.tobytes() == want.tobytes()


def test_rows_of_another_type() -> None:
    rng = np.random.default_rng(0)
    rows, places = made(rng, 5000, 16, "f2"), rng.integers(0, 9, 5000)
    got, want = np.zeros((9, 16), "f4"), np.zeros((9, 16), "f4")
    merge_rows(got, places, taking(rows))
    for place, row in zip(places, rows, strict=True):
        want[place] += row
    assert got.tobytes() == want.tobytes()


def test_rows_that_are_merged_one_by_one_take_little_memory() -> None:
    rows = np.ones((20_000, 7), np.float32)
    places = np.arange(20_000) % 1_000
    target = np.zeros((1_000, 7), np.float32)
    assert peak_of(lambda: merge_rows(target, places, taking(rows))) < 300 << 10  # of 1.6 MiB
    assert (target == 20).all()


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize(
    "places", [[0, 1, 2, 3], [2, 1, 0, 1, 2, 3, 2, 1], [3, 3, 0, 3, 3, 3], [2]]
)
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_bits_of_slices(dim: int, places: list[int], dtype: str, monkeypatch: Any) -> None:
    """Distinct ones, a reflected image's, more of one place than are merged at once, one."""
    monkeypatch.setattr(rows_, "_WORTH", 0)
    rng = np.random.default_rng(0)
    shape = (4, 4, 4)
    got = (rng.standard_normal(shape) * 9).astype(dtype)
    want = np.moveaxis(got.copy(), dim, 0)
    source = (rng.standard_normal((*shape[:dim], len(places), *shape[dim + 1 :])) * 9).astype(dtype)
    add_slices(got, dim, np.array(places), source)
    for place, part in zip(places, np.moveaxis(source, dim, 0), strict=True):
        want[place] += part
    np.testing.assert_array_equal(np.moveaxis(got, dim, 0), want)
