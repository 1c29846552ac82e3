"""Gradients of layer normalization by oneDNN: as exact as PyTorch's, and the same bits by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import skimp
from skimp._kernels import normalization_onednn, onednn
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]


def _numbers(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype="f4")


def _gradients(
    lib: Any, x: Array, parameters: list[Array | None], g: Array, frozen: bool
) -> list[Array]:
    leaf = lib.tensor(x, requires_grad=True)
    given = [None if p is None else lib.tensor(p, requires_grad=not frozen) for p in parameters]
    y = lib.nn.functional.layer_norm(leaf, x.shape[-1:], *given)
    y.backward(lib.tensor(g))
    return [t.grad.numpy() for t in (leaf, *given) if t is not None and t.grad is not None]


@given(
    rows=st.integers(1, 3000),
    n=st.integers(2, 130),
    weight=st.booleans(),
    bias=st.booleans(),
    frozen=st.booleans(),
)
def test_values(rows: int, n: int, weight: bool, bias: bool, frozen: bool) -> None:
    x, g = _numbers((rows, n), 0), _numbers((rows, n), 1)
    parameters = [_numbers((n,), 2) if weight else None, _numbers((n,), 3) if bias else None]
    wide = [None if p is None else p.astype("f8") for p in parameters]
    exact = _gradients(torch, x.astype("f8"), wide, g.astype("f8"), frozen)
    want = _gradients(torch, x, parameters, g, frozen)
    got = _gradients(skimp, x, parameters, g, frozen)
    assert len(got) == len(want)
    for one, other, true in zip(got, want, exact, strict=True):
        allowed = 4 * np.abs(other - true).max() + 1e-6 * np.abs(true).max()
        assert np.abs(one - true).max() <= allowed


@pytest.mark.parametrize("shape", [(7, 40), (300, 500), (3000, 70)])
@pytest.mark.parametrize("affine", [False, True])
def test_bits_whatever_the_settings(shape: tuple[int, int], affine: bool) -> None:
    found = []
    settings: list[dict[str, Any]] = [{"defer": d} for d in ("auto", "never", "always")]
    for setting in (*settings, {"threads": 1}, {"block": 1000}, {"small_below": 16}):
        with config.using(**setting):
            x = skimp.tensor(_numbers(shape[::-1], 0), requires_grad=True)
            norm = skimp.nn.LayerNorm(shape[1], elementwise_affine=affine)
            (norm(x.t() * 2) * skimp.tensor(_numbers(shape, 1))).sum().backward()
            found.append([x.grad.numpy(), *[p.grad.numpy() for p in norm.parameters()]])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_has_gaps_is_read_and_written_in_place() -> None:
    x, g, w = _numbers((50, 60), 0), _numbers((50, 60), 1), _numbers((60,), 2)
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + np.float32(1e-5))
    dense, gaps = np.empty_like(x), np.zeros((50, 120), "f4")
    sums = normalization_onednn.backward(g, x, mean, rstd, w, True, dense)
    turned = [np.asfortranarray(a) for a in (g, x)]
    again = normalization_onednn.backward(*turned, mean, rstd, w, True, gaps[:, ::2])
    np.testing.assert_array_equal(gaps[:, ::2], dense)
    assert not gaps[:, 1::2].any()
    np.testing.assert_array_equal(np.array(sums), np.array(again))


@given(
    rows=st.integers(1, 1000),
    n=st.integers(2, 500),
    weight=st.booleans(),
    bias=st.booleans(),
    threads=st.integers(1, 3),
)
def test_forward_has_the_bits_of_numpy(
    rows: int, n: int, weight: bool, bias: bool, threads: int
) -> None:
    x, mean, rstd = _numbers((rows, n), 0), _numbers((rows, 1), 1), _numbers((rows, 1), 2)
    w, b = _numbers((n,), 3) if weight else None, _numbers((n,), 4) if bias else None
    y = np.full_like(x, np.nan)
    with config.using(threads=threads):
        made = normalization_onednn.centred(x, mean, y)
        assert made is (x.size >= 1 << 17)
        if made:
            np.testing.assert_array_equal(y, x - mean)
        made = normalization_onednn.scaled(x, rstd, w, b, y)
        assert made is (x.size >= 1 << (16 if weight or bias else 17))
    if made:
        want = x * rstd if w is None else x * rstd * w
        np.testing.assert_array_equal(y, want if b is None else want + b)


def test_forward_leaves_other_types_and_what_has_gaps() -> None:
    x, mean, w = _numbers((1500, 100), 0), _numbers((1500, 1), 1), _numbers((100,), 2)
    wide, gaps = np.empty((1500, 100)), np.empty((1500, 200), "f4")[:, ::2]
    assert not normalization_onednn.centred(x.astype("f8"), mean.astype("f8"), wide)
    assert not normalization_onednn.centred(x, mean, gaps)
    assert not normalization_onednn.scaled(gaps, mean, w, None, gaps)
    assert not normalization_onednn.scaled(x, mean, w.astype("f8"), None, x)
