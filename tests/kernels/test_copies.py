"""Copies between arrays of one type: what NumPy's assignment gives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from skimp._kernels import compiled, copies, loops

WAYS = [loops] if compiled.loops() is None else [loops, compiled.loops()]


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.bfloat16, np.complex128, object])
@pytest.mark.parametrize("width", [3, 16, 300])
def test_copies_of_runs(dtype: type, width: int) -> None:
    whole = np.arange(2 * 40 * 7 * width).reshape(2, 40, 7, width).astype(dtype)
    turned = whole.transpose(0, 2, 1, 3)
    for x in (turned, turned[::-1], turned[:, ::2], turned[..., : width - 1], turned.T, whole):
        made = copies.dense(x)
        np.testing.assert_array_equal(made, x)
        assert made.flags.c_contiguous
        assert not np.shares_memory(made, whole)
        np.testing.assert_array_equal(
            copies.reshaped(x, (x.shape[0], -1)), x.reshape(x.shape[0], -1)
        )
        out = np.zeros((*x.shape[:-1], x.shape[-1] + 2), dtype)[..., 1:-1]
        copies.put(x, out)
        np.testing.assert_array_equal(out, x)
        assert out.base is not None
        assert not np.any(out.base[..., :: max(out.base.shape[-1] - 1, 1)].astype(bool))


def test_a_shape_that_fits_no_elements_is_refused_and_one_that_fits_is_a_view() -> None:
    x = np.zeros((6, 40, 7, 16)).transpose(0, 2, 1, 3)
    with pytest.raises(ValueError, match="reshape"):
        copies.reshaped(x, (6, 41, -1))
    assert np.shares_memory(copies.reshaped(x, (6, 7, 40, 4, 4)), x)


@pytest.mark.parametrize("made", WAYS)
@given(data=st.data())
def test_runs_that_are_moved(made: Any, data: Any) -> None:
    """Slices of turned arrays, and rows that are repeated, by any number of threads."""
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 7, 40]), min_size=1, max_size=3))
    shape = (*sizes, data.draw(st.sampled_from([5, 33, 5000])))
    order = (*data.draw(st.permutations(range(len(sizes)))), len(sizes))
    dtype = data.draw(st.sampled_from([np.float32, np.bool_, np.complex128]))
    whole = np.arange(np.prod([n + 2 for n in shape])).reshape([n + 2 for n in shape]).astype(dtype)
    x = whole[tuple([slice(1, -1)] * len(shape))].transpose(order)
    if data.draw(st.booleans()):
        x = x[0]
    into = np.zeros((3, *[shape[d] for d in order[:-1]], shape[-1] + 1), dtype)
    out = into[1, ..., 1:]
    assert made.moved(x, out, data.draw(st.integers(1, 3)))
    np.testing.assert_array_equal(out, np.broadcast_to(x, out.shape))
    assert not into[::2].any()
    assert not into[..., 0].any()


@pytest.mark.skipif(compiled.loops() is None, reason="nothing is compiled")
@pytest.mark.parametrize("places", [0, 1])
def test_a_run_beyond_the_cache_is_moved_whole(places: int) -> None:
    """Past the cache where it begins with a line of it, to its last byte and no further."""
    n = (1 << 26) + 21
    x = np.arange(n, dtype=np.uint32).view(np.uint8)[3 : n + 3]
    room = np.zeros(n + 128, np.uint8)
    first = -room.ctypes.data % 64 + places
    assert compiled.loops().moved(x, room[first : first + n], 3)
    np.testing.assert_array_equal(room[first : first + n], x)
    assert not room[:first].any()
    assert not room[first + n :].any()


@pytest.mark.skipif(compiled.loops() is None, reason="nothing is compiled")
def test_what_is_no_copy_of_runs_is_left_to_numpy() -> None:
    whole = np.arange(60.0).reshape(3, 4, 5)
    reading = np.zeros((4, 5))
    reading.flags.writeable = False
    for source, out in (
        (whole[0], reading),
        (whole[0], whole[0]),  # the same memory
        (whole[0, 1:], whole[0, :-1]),
        (whole[0], np.zeros((4, 5), "f")),
        (whole[0], np.zeros((4, 5), ">f8")),
        (whole[0], np.zeros((5, 4)).T),
        (whole[0, :, ::-1], np.zeros((4, 5))),
        (whole[0, ::-1], np.zeros((4, 5))),
        (whole[0], np.zeros((3, 5))),
        (whole, np.zeros((4, 5))),
        (whole[:0], np.zeros((0, 4, 5))),
        (np.zeros((4, 5), object), np.ones((4, 5), object)),
        ([1.0], np.zeros(1)),
    ):
        before = np.array(out)
        assert not compiled.loops().moved(source, out, 2)
        np.testing.assert_array_equal(out, before)
