"""NumPy's functions without its Python, and numbers that are remembered as arrays."""

from __future__ import annotations

import numpy as np
import pytest

import skimp
from skimp._kernels import bare

NAMES = ("bincount", "concatenate", "copyto", "dot", "empty_like", "where")


@pytest.mark.parametrize("name", NAMES)
def test_no_function_of_python_comes_first(name: str) -> None:
    """Where NumPy has none to ask by, it is NumPy's own: then this test has to go."""
    assert type(getattr(bare, name)) is not type(getattr(np, name))


def test_they_give_what_numpys_give() -> None:
    a, mask = np.arange(6.0).reshape(2, 3), np.array([True, False, True])
    assert np.array_equal(bare.where(mask, a, 0), np.where(mask, a, 0))
    assert np.array_equal(bare.concatenate([a, a], axis=1), np.concatenate([a, a], axis=1))
    bare.copyto(a, 7, where=mask)
    assert a.tolist() == [[7, 1, 7], [7, 4, 7]]


def test_a_number_is_made_once_unless_it_is_zero() -> None:
    dtype = np.dtype(np.float32)
    assert bare.number(1.5, dtype) is bare.number(1.5, dtype)
    assert np.signbit(bare.number(-0.0, dtype))
    assert not np.signbit(bare.number(0.0, dtype))


def test_zeros_of_both_signs_beside_a_tensor() -> None:
    x = skimp.tensor([2.0, -3.0])
    for zero in (0.0, -0.0, 0.0):
        product, limit = x * zero, x.clamp(min=zero)
        assert np.signbit(product.numpy()).tolist() == [np.signbit(zero), not np.signbit(zero)]
        assert np.signbit(limit.numpy()).tolist() == [False, np.signbit(zero)]


def test_sign_of_what_is_no_number_is_zero() -> None:
    x = skimp.tensor([[float("nan"), -2.0], [float("inf"), -0.0]])
    assert x.sign().tolist() == [[0, -1], [1, 0]]
    assert x.t().sign().tolist() == [[0, 1], [-1, 0]]
