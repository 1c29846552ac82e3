"""Sums of few windows side by side: added tap by tap, and the largest of each as of any window."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._kernels import pool, pool_maxima
from skimp._kernels.pool import Pool

Array = np.ndarray[Any, Any]


def _side_by_side(size: tuple[int, ...], kernel: tuple[int, ...]) -> Pool:
    none, ones = (0,) * len(size), (1,) * len(size)
    out = tuple([n // k for n, k in zip(size, kernel, strict=True)])
    return Pool(size, kernel, kernel, none, ones, out)


# beside one column of windows, the elements of each lie next to each other: added in pairs
@pytest.mark.parametrize(
    ("size", "kernel"), [((8, 8), (4, 4)), ((30, 5), (10, 5)), ((90,), (30,)), ((6, 9), (6, 9))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_added_tap_by_tap(
    size: tuple[int, ...], kernel: tuple[int, ...], dtype: Any
) -> None:
    windows = _side_by_side(size, kernel)
    x = np.random.default_rng(2).standard_normal((3, *size)).astype(dtype)
    out = np.empty((3, *windows.out), dtype)
    pool.total(x, out, np.array(7.0), windows)
    want = np.zeros_like(out)
    for seen in windows.seen:
        want += x[seen]
    assert out.tobytes() == (want / dtype(7)).tobytes()


@pytest.mark.parametrize("size", [(8, 8), (7, 1), (9,)])
def test_sums_of_windows_that_overlap_are_added_tap_by_tap(size: tuple[int, ...]) -> None:
    nd = len(size)
    windows = Pool(
        size, (3,) * nd, (2,) * nd, (1,) * nd, (1,) * nd, tuple((n + 1) // 2 for n in size)
    )
    x = np.random.default_rng(2).standard_normal((3, *size)).astype(np.float32)
    out = np.empty((3, *windows.out), np.float32)
    divisor = pool.divisors(windows, False, None)
    pool.total(x, out, divisor, windows)
    around = np.pad(x, [(0, 0)] + [(1, 1)] * nd)
    want = np.zeros_like(out)
    for seen in windows.seen:
        want += around[seen]
    assert out.tobytes() == (want / divisor.astype(np.float32)).tobytes()


def test_the_sum_of_negative_zeros_is_zero() -> None:
    windows = _side_by_side((4, 4), (2, 2))
    out = np.empty((1, 2, 2), np.float32)
    pool.total(np.full((1, 4, 4), -0.0, np.float32), out, np.array(4.0), windows)
    assert not np.signbit(out).any()


@pytest.mark.parametrize(
    ("size", "kernel", "step"),
    [
        ((8, 8), (2, 2), (2, 2)),  # windows side by side
        ((9, 7), (2, 2), (2, 2)),  # a rest
        ((9, 8), (2, 1), (3, 2)),  # gaps
        ((12,), (3,), (3,)),
        ((8, 8), (3, 3), (2, 2)),  # that overlap
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_sums_are_those_added_tap_by_tap(
    size: tuple[int, ...], kernel: tuple[int, ...], step: tuple[int, ...], dtype: Any, last: bool
) -> None:
    none, ones = (0,) * len(size), (1,) * len(size)
    places = [(n - k) // s + 1 for n, k, s in zip(size, kernel, step, strict=True)]
    windows = Pool(size, kernel, step, none, ones, tuple(places))
    assert windows.apart == (kernel <= step)
    g = np.random.default_rng(3).standard_normal((3, *windows.out)).astype(dtype)
    g.reshape(3, -1)[:, :4] = -0.0, np.nan, np.inf, -np.inf
    out = np.full((*size, 3) if last else (3, *size), 5, dtype)
    out = np.moveaxis(out, -1, 0) if last else out
    pool.total_spread(g, out, np.array(7.0), windows)
    wide = np.result_type(dtype, np.float32)
    want = np.zeros(out.shape, wide)
    for seen in windows.seen:
        want[seen] += g / wide.type(7)
    np.testing.assert_array_equal(out, want.astype(dtype))
    np.testing.assert_array_equal(np.signbit(out) & (out == 0), False)


@pytest.mark.parametrize("wrong", [0.0, np.inf, -np.inf, np.nan])
def test_largest_of_blocks_and_their_places_are_pytorchs(wrong: float) -> None:
    """Beside numbers that are none, and equals, of which the first counts."""
    x = np.random.default_rng(4).integers(0, 4, (2, 3, 6, 8)).astype(np.float32)
    x[0, 1, 2, 3] = x[1, 0, 5, 7] = x[1, 0, 5, 6] = wrong
    for size in ((2, 4), (3, 1), 1, (6, 8)):
        want = torch.nn.functional.adaptive_max_pool2d(torch.from_numpy(x), size, True)
        have = skimp.nn.functional.adaptive_max_pool2d(skimp.from_numpy(x), size, True)
        for w, h in zip(want, have, strict=True):
            np.testing.assert_array_equal(h.numpy(), w.numpy())


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_gradients_of_windows_that_overlap_are_added_in_pytorchs_order(
    step: int, last: bool
) -> None:
    """One window after the other, as planes and as images whose channels lie last."""
    rng = np.random.default_rng(5)
    x, found = rng.standard_normal((2, 3, 9, 8)).astype(np.float32), []
    for lib in (skimp, torch):
        t = lib.from_numpy(x.copy())
        t = t.contiguous(memory_format=lib.channels_last) if last else t
        y = lib.nn.functional.max_pool2d(t.requires_grad_(), 3, step, 1)
        g = np.random.default_rng(6).standard_normal(y.shape).astype(np.float32)
        y.backward(lib.from_numpy(g))
        found.append(t.grad.numpy())
    np.testing.assert_array_equal(*found)


def _scratch_of(pool_: Pool, shape: tuple[int, ...], last: bool) -> int:
    """The most bytes that NumPy has taken meanwhile to find maxima and their taps, and back."""
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    best = np.empty((*shape[: -len(pool_.out)], *pool_.out), np.float32)
    taps = np.empty(best.shape, np.uint8)
    arrays = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, best, taps)]
    if last:
        x, best, taps = [a.transpose(0, 3, 1, 2) for a in arrays]
    back = np.empty_like(x)
    tracemalloc.start()
    try:
        pool_maxima.maximum(x, best, taps, pool_)
        pool_maxima.spread(best, taps, back, pool_)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("kernel", "last"), [(11, False), (3, True)])
def test_wide_windows_take_no_room_for_each_tap(kernel: int, last: bool) -> None:
    size, half = (96, 96), kernel // 2
    windows = Pool(size, (kernel,) * 2, (1, 1), (half, half), (1, 1), size)
    shape = (1, 32, *size) if last else (2, 1, *size)
    padded = 4 * math.prod(shape[:2]) * math.prod(windows.padded)
    assert _scratch_of(windows, shape, last) < 2 * padded + (2 << 20)


@pytest.mark.parametrize(
    ("n", "kernel", "dilation", "first"), [(3, 2, 4, 3), (1, 2, 2, 1), (5, 2, 6, 5)]
)
def test_windows_around_the_plane_have_no_gradient(
    n: int, kernel: int, dilation: int, first: int
) -> None:
    where = {"kernel_size": kernel, "stride": 1, "padding": 1, "dilation": dilation}
    x = skimp.full((2, 3, n), 2.0, requires_grad=True)
    best, at = skimp.nn.functional.max_pool1d(x, **where, return_indices=True)
    assert best.eq(-skimp.inf).all()
    assert set(at.flatten().tolist()) == {first}  # as PyTorch
    best.sum().backward()
    assert not x.grad.any()
