"""Copies between layouts and types, against NumPy and torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from skimp._engine.eval import copy as copies, make
from skimp._engine.eval.copy import copy
from skimp._engine.tensor import dtypes
from skimp.config import config


@pytest.fixture
def everything_in_blocks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(copies, "_SMALL", 1)
    monkeypatch.setattr(copies, "_TILE", 64)
    monkeypatch.setattr(copies, "_RUN", 100)
    with config.using(threads=3, threads_from=0):
        yield


@st.composite
def layouts(draw: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    order = draw(st.permutations(range(len(shape))))
    steps = draw(st.lists(st.sampled_from([1, 1, 2]), min_size=len(shape), max_size=len(shape)))
    sizes = [shape[dim] * step for dim, step in zip(order, steps, strict=True)]
    array = np.zeros(sizes, np.int32)[(*(slice(None, None, step) for step in steps), ...)]
    return array.transpose(np.argsort(order))


def check_layouts(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 20), min_size=0, max_size=4)))
    dst, src = data.draw(layouts(shape)), data.draw(layouts(shape))
    src[...] = np.arange(src.size).reshape(shape)
    if data.draw(st.booleans()) and shape:
        src = np.broadcast_to(src[:1], shape) if shape[0] else src
    copy(dst, src)
    np.testing.assert_array_equal(dst, src)
    if dst.base is not None:
        assert np.count_nonzero(dst.base) == np.count_nonzero(src)  # nothing beside dst was written


def test_any_layout_to_any_layout(everything_in_blocks: None) -> None:
    settings(max_examples=150, deadline=None)(given(st.data())(check_layouts))()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("shape", [(768, 512), (7000, 48), (30_000, 10), (3, 7, 20_000)])
def test_rows_of_middle_size(shape: tuple[int, ...], dtype: Any) -> None:
    """A bias in each row, a number, rows that are turned, apart, or of another type."""
    whole = np.random.default_rng(0).normal(20, 9, shape).astype(dtype)
    turned = np.ascontiguousarray(np.swapaxes(whole, 0, -2)).swapaxes(0, -2)
    apart = np.repeat(whole, 2, -2)[..., ::2, :]
    for threads in (1, 2):
        with config.using(threads=threads):
            for src in (
                whole, whole[(0,) * (whole.ndim - 1)], whole.reshape(-1)[0], whole[..., :1],
                turned, apart, whole[..., ::-1], whole.astype(np.int32),
            ):  # fmt: skip
                dst = np.empty(shape, dtype)
                copy(dst, np.asarray(src))
                np.testing.assert_array_equal(dst, np.broadcast_to(src, shape))


@pytest.mark.parametrize(
    "shape", [(700, 900), (512, 1024), (3, 70_000), (70_000, 3), (10, 100, 300)]
)
def test_transposed(shape: tuple[int, ...]) -> None:
    src = np.random.default_rng(0).standard_normal(shape[::-1]).astype(np.float32)
    dst = np.empty(shape, np.float32)
    copy(dst, src.T)
    np.testing.assert_array_equal(dst, src.T)


def test_onto_itself() -> None:
    values = np.arange(100_000.0)
    copy(values, values)
    np.testing.assert_array_equal(values, np.arange(100_000.0))


def sample(dtype: dtypes.dtype) -> Any:
    """Numbers around every edge at which conversions differ."""
    rng = np.random.default_rng(0)
    if dtype.category < dtypes.FLOAT:
        return rng.integers(0, 2**63, 20_000).astype(dtype.np)
    values = rng.standard_normal(20_000) * np.exp(rng.uniform(-10, 60, 20_000))
    values[:9000] = rng.uniform(-400, 400, 9000)
    values[9000:9009] = [np.nan, np.inf, -np.inf, 0, -0.5, 2.0**31, -(2.0**31) - 5, 2.0**63, 256.5]
    if dtype.is_complex:
        values = values + 1j * rng.integers(0, 2, 20_000)
    with np.errstate(all="ignore"):
        return values.astype(dtype.np)


def to_torch(array: Any, dtype: dtypes.dtype) -> torch.Tensor:
    if dtype is dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@pytest.mark.parametrize("to", dtypes.ALL, ids=str)
@pytest.mark.parametrize("have", dtypes.ALL, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")  # torch's own
def test_conversions_are_torchs(have: dtypes.dtype, to: dtypes.dtype) -> None:
    src = sample(have)
    want = to_torch(src, have).to(getattr(torch, to.name))
    for count in (20_000, 9010):  # in blocks, and in one call
        dst = np.empty(count, to.np)
        copy(dst, src[:count])
        got = to_torch(dst, to)
        assert bool(((got == want[:count]) | ((got != got) & (want != want)[:count])).all())


@pytest.mark.parametrize("step", [48, 1024])  # bytes between columns that compete in the cache
def test_tiles_of_short_dims_hold_others_too(step: int) -> None:
    """A dim of 16 beside one of 3 made tiles of 48 elements: 200,000 calls for 64 images."""
    src = np.arange(8 * 3 * 28 * step, dtype=np.float32).reshape(8, 3, 7, 4, step // 4, 4)
    moved = src.transpose(0, 2, 4, 3, 5, 1)
    assert math.prod(make.tile_block(moved.shape, 4, 1 << 16)) > 1 << 14
    dst = np.empty(moved.shape, np.float32)
    copies._copy_blocks(dst, moved)
    np.testing.assert_array_equal(dst, moved)
    copy(dst, -moved)
    np.testing.assert_array_equal(dst, -moved)
