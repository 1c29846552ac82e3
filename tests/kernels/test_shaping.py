"""Views of arrays and their address: what NumPy's own functions give."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from skimp._kernels import shaping

A = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("dim", range(-3, 3))
def test_dims_go_to_the_ends(dim: int) -> None:
    for a in (A, A.transpose(2, 0, 1), A[:, :0]):
        for mine, theirs in (
            (shaping.dim_first(a, dim), np.moveaxis(a, dim, 0)),
            (shaping.dim_last(a, dim), np.moveaxis(a, dim, -1)),
        ):
            np.testing.assert_array_equal(mine, theirs)
            assert mine.strides == theirs.strides
            assert a.size == 0 or np.shares_memory(mine, a)
    assert shaping.dim_last(np.array(3.0), 0).shape == (1,)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.bfloat16, np.complex64])
@pytest.mark.parametrize(
    ("have", "want"),
    [
        ((4,), (4,)), ((4,), (3, 4)), ((1,), (3, 4)), ((), (2, 2)), ((), ()), ((3, 1), (2, 3, 4)),
        ((2, 1, 4), (2, 3, 4)), ((0,), (3, 0)), ((1, 0), (2, 0)), ((1, 1), (0, 3)),
    ],
)  # fmt: skip
def test_broadcast(have: tuple[int, ...], want: tuple[int, ...], dtype: type) -> None:
    a = np.arange(np.prod(have, dtype=int)).reshape(have).astype(dtype)
    for x in (a, a.T, np.asfortranarray(a)):
        if x.shape == have:
            np.testing.assert_array_equal(shaping.broadcast(x, want), np.broadcast_to(x, want))


@pytest.mark.parametrize(("have", "want"), [((3,), (4,)), ((2, 3), (3,)), ((2, 3), (3, 3))])
def test_shapes_that_do_not_broadcast(have: tuple[int, ...], want: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"could not be broadcast|more dimensions"):
        shaping.broadcast(np.zeros(have), want)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_along(dim: int) -> None:
    at = np.argsort(-A, dim).take([1, 0, 1], dim)
    for a in (A, np.asfortranarray(A)):
        np.testing.assert_array_equal(shaping.along(a, at, dim), np.take_along_axis(a, at, dim))


def test_an_address_is_that_of_the_first_element() -> None:
    fixed = A.copy()
    fixed.flags.writeable = False
    halves = A.astype(ml_dtypes.bfloat16)
    arrays = [A, A[1:], A[:, ::2], A[::-1, 1], A.T, A[1, 2, 3:], A[:0], A[:, :, :0], fixed, halves]
    for a in [*arrays, np.array(3), np.broadcast_to(A, (5, *A.shape)), A > 2, halves.T[1:]]:
        assert shaping.address(a) == a.ctypes.data
