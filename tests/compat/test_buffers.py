"""frombuffer, and what Python makes of a tensor that is asked for bytes, beside PyTorch's."""

from __future__ import annotations

import array
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import skimp
from tests.support.samples import agree, refusals
from tests.support.told import told_anew

# -- buffers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "words"),
    refusals(
        {
            None: [
                {"buffer": bytearray(8), "dtype": "int32", "count": -2},
                {"buffer": bytearray(range(8)), "dtype": "int32", "offset": 1, "count": 1},
                {"buffer": bytearray(8), "dtype": "float32", "requires_grad": True},
                {"buffer": bytearray(8), "dtype": "bfloat16"},
                {"buffer": array.array("d", [1.5, 2.5]), "dtype": "float64"},
                {"buffer": memoryview(bytearray(range(8)))[2:6], "dtype": "uint8"},
            ],
            RuntimeError: [{"buffer": np.zeros((4, 4))[:, :2], "dtype": "float64"}],
            ValueError: [
                {"buffer": 5, "dtype": "int8"},
                {"buffer": b"", "dtype": "int8"},
                {"buffer": bytearray(8), "dtype": "int32", "count": 0},
                {"buffer": bytearray(8), "dtype": "int32", "offset": 8},
                {"buffer": bytearray(8), "dtype": "int32", "offset": -1},
                {"buffer": bytearray(8), "dtype": "int32", "offset": 1},
                {"buffer": bytearray(8), "dtype": "int32", "offset": 7, "count": 1},
                {"buffer": bytearray(8), "dtype": "int32", "count": 3},
            ],
        }
    ),
)
def test_frombuffer(words: dict[str, Any], refused: Any) -> None:
    def f(lib: Any) -> Any:
        return lib.frombuffer(**{**words, "dtype": getattr(lib, words["dtype"])})

    agree(f, refused=refused)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_frombuffer_of_any_part(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.binary(max_size=40)))
    dtype = data.draw(st.sampled_from(("uint8", "int16", "int32", "int64")))
    count, offset = data.draw(st.integers(-2, 8)), data.draw(st.integers(-1, 40))
    left, size = len(raw) - offset, getattr(torch, dtype).itemsize
    fits = (count > 0 and count * size <= left) or (count < 0 and left % size == 0)
    agree(
        lambda lib: lib.frombuffer(raw, dtype=getattr(lib, dtype), count=count, offset=offset),
        refused=None if 0 <= offset < len(raw) and fits else ValueError,
    )


def test_frombuffer_shares() -> None:
    raw = bytearray(8)
    x = skimp.frombuffer(raw, dtype=skimp.int16, offset=2)
    x[0] = 1
    assert raw == b"\0\0\1\0\0\0\0\0"
    raw[4] = 7
    assert x.tolist() == [1, 7, 0]
    with pytest.raises(BufferError):  # the tensor holds the buffer, which may not move
        raw.append(1)


def test_frombuffer_of_read_only_bytes() -> None:
    with told_anew(), pytest.warns(UserWarning, match="The given buffer is not writable"):
        x = skimp.frombuffer(b"abcd", dtype=skimp.uint8)
    assert x.tolist() == [97, 98, 99, 100]
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1


@pytest.mark.parametrize("take", [bytes, bytearray])
@pytest.mark.parametrize(
    ("refused", "numbers"),
    [(None, [72, 105]), (None, 3), (ValueError, [1, 256]), (TypeError, [[1, 2], [3, 4]])],
)
def test_bytes_are_made_of_a_tensor_s_numbers(take: Any, numbers: Any, refused: Any) -> None:
    agree(lambda lib: take(lib.tensor(numbers)), refused=refused)


@pytest.mark.parametrize("take", [memoryview, b"a".__add__, np.frombuffer])
def test_a_tensor_is_no_buffer(take: Any) -> None:
    """Else Python would take the memory of int64 numbers for the bytes, from 3.12 on."""
    agree(lambda lib: take(lib.tensor([72, 105])), refused=TypeError)
