"""Convolution by kernels of one tap, by oneDNN's products of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import conv_onednn, conv_products, onednn, teams
from skimp._kernels.im2col import Window
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype="f4")


def _window(size: tuple[int, ...], **other: Any) -> Window:
    ones = (1,) * len(size)
    sides = {"stride": ones, "padding": (0,) * len(size), "dilation": ones} | other
    return Window(size, ones, sides["stride"], sides["padding"], sides["dilation"], size)


def _made(face: str, arrays: tuple[Any, Any, Any], bias: Array | None, w: Window) -> bool:
    x, weight, g = arrays
    strides = x.strides, weight.strides, g.strides
    found = conv_products.product(face, w, len(x), weight.shape, strides, bias is not None)
    if found is not None:
        found.make(*arrays, bias)
    return found is not None


def _all(x: Array, weight: Array, g: Array, bias: Array | None, w: Window) -> list[Array]:
    """The result, and the gradients of the input, of the weights and of the bias."""
    y, dx, dw = [np.empty(a.shape, "f4") for a in (g, x, weight)]
    db = None if bias is None else np.empty_like(bias)
    assert _made("forward", (x, weight, y), bias, w)
    assert _made("adjoint", (dx, weight, g), None, w)
    assert _made("weights", (x, dw, g), db, w)
    return [y, dx, dw, *([] if db is None else [db])]


def _wanted(x: Array, weight: Array, g: Array, bias: Array | None) -> list[Array]:
    n, _, ci = x.shape[:3]
    a, b = [v.astype("f8").reshape(n, v.shape[2], -1) for v in (x, g)]
    matrix = weight.astype("f8").reshape(-1, ci)
    y = matrix @ a + (0 if bias is None else bias.reshape(-1, 1))
    dw = (b @ a.transpose(0, 2, 1)).sum(0)
    found = [y.reshape(g.shape), (matrix.T @ b).reshape(x.shape), dw.reshape(weight.shape)]
    return found if bias is None else [*found, b.sum((0, 2))[None]]


@settings(max_examples=25)
@given(
    n=st.integers(1, 5), ci=st.integers(8, 70), co=st.integers(8, 70), rows=st.integers(13, 30),
    columns=st.integers(13, 20), bias=st.booleans(), last=st.booleans(),
)  # fmt: skip
def test_values_and_bits_whoever_makes_them(
    n: int, ci: int, co: int, rows: int, columns: int, bias: bool, last: bool
) -> None:
    x, g = _numbers(n, 1, ci, rows, columns), _numbers(n, 1, co, rows, columns, seed=1)
    weight, add = _numbers(1, co, ci, 1, 1, seed=2), _numbers(1, co, seed=3) if bias else None
    w = _window((rows, columns))
    if last:  # channels last in memory, of the input
        x = np.ascontiguousarray(np.moveaxis(x, 2, -1)).transpose(0, 1, 4, 2, 3)
    found = []
    for team in (1, 2, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(teams, "size", lambda threads, team=team: team)
            patch.setattr(conv_products, "_SHARED", 1)
            found.append(_all(x, weight, g, add, w))
    for got, want in zip(found[0], _wanted(x, weight, g, add), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_our_own_threads_share_images() -> None:
    x, g = _numbers(16, 1, 24, 32, 32), _numbers(16, 1, 48, 32, 32, seed=1)
    weight, w = _numbers(1, 48, 24, 1, 1, seed=2), _window((32, 32))
    found = []
    for threads in (1, 2, 5):
        with config.using(threads=threads, threads_from=0), pytest.MonkeyPatch.context() as patch:
            patch.setattr(teams, "size", lambda threads: 1)
            found.append(_all(x, weight, g, None, w))
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_what_it_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_products, "_BRIEF", 0)  # NumPy takes images with gaps
    x, weight, w = _numbers(2, 1, 8, 16, 16), _numbers(1, 8, 8, 1, 1), _window((16, 16))
    y = np.empty_like(x)
    for arrays, window in (
        ((x, weight, y), _window((16, 16), stride=(2, 2))),
        ((x, weight, y), _window((16, 16), padding=(1, 1))),
        ((x[:, :, :, ::2], weight, y[:, :, :, ::2]), _window((8, 16))),
        ((np.broadcast_to(x[:1], x.shape), weight, y), w),
        ((_numbers(2, 1, 20, 16, 16)[:, :, 6:14], weight, y), w),
    ):
        assert not _made("forward", arrays, None, window)
    narrow = np.empty((2, 1, 512, 2, 2), "f4"), np.empty((1, 512, 512, 1, 1), "f4")
    arrays = narrow[0], narrow[1], narrow[0]
    assert not _made("weights", arrays, None, _window((2, 2)))  # parts are many
    x, weight = np.empty((1, 1, 2000, 4, 4), "f4"), np.empty((1, 8, 2000, 1, 1), "f4")
    y = np.empty((1, 1, 8, 4, 4), "f4")
    assert not _made("forward", (x, weight, y), None, _window((4, 4)))  # long sums


@pytest.mark.parametrize("face", ["forward", "adjoint", "weights"])
def test_what_is_brief_has_the_values_wherever_it_lies(face: str) -> None:
    """By NumPy, of images with gaps, with their channels last, and of one image."""
    whole, weight, w = _numbers(3, 1, 9, 4, 5), _numbers(1, 6, 4, 1, 1, seed=2), _window((4, 5))
    for x in (whole[:, :, 2:6], whole[1:2, :, 3:7], np.moveaxis(_numbers(2, 1, 4, 5, 4), 4, 2)):
        g, bias = _numbers(len(x), 1, 6, 4, 5, seed=1), _numbers(1, 6, seed=3)
        add = None if face == "adjoint" else bias
        arrays = [x, weight, g]
        made = ["adjoint", "weights", "forward"].index(face)
        wanted = dict(
            zip(("forward", "adjoint", "weights", "bias"), _wanted(*arrays, bias), strict=True)
        )
        arrays[made] = np.empty_like(arrays[made])
        assert _made(face, tuple(arrays), add, w)
        np.testing.assert_allclose(arrays[made], wanted[face], rtol=1e-5, atol=1e-5)
        if face == "weights":
            np.testing.assert_allclose(bias, wanted["bias"], rtol=1e-5, atol=1e-5)


def test_both_gradients_where_one_is_no_product() -> None:
    x, g = _numbers(4, 1, 96, 6, 6), _numbers(4, 1, 96, 6, 6, seed=1)
    weight, w = _numbers(1, 96, 96, 1, 1, seed=2), _window((6, 6))
    dx, dw, alone = np.empty_like(x), np.empty_like(weight), np.empty_like(weight)
    assert not _made("weights", (x, dw, g), None, w)
    assert conv_onednn.adjoint_and_weights(g, x, weight, dx, dw, w, None)
    assert conv_onednn.weights(g, x, alone, w)
    _, want, total = _wanted(x, weight, g, None)
    np.testing.assert_allclose(dx, want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(dw, total, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(dw, alone)


def test_by_steps_only_what_is_seen_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = _numbers(3, 9, 13, 12), _numbers(8, 9, 1, 1), _numbers(8)
    x[:, :, 1], x[:, :, :, 1] = np.inf, np.nan  # what lies between
    g = _numbers(3, 8, 7, 4)
    found: list[list[Any]] = []
    lib: Any
    for lib in (torch, skimp):
        given = [lib.tensor(a, requires_grad=True) for a in (x, weight, bias)]
        with monkeypatch.context() as patch:
            patch.setattr(conv_onednn, "works_of", None)  # no convolution is asked for
            y = lib.nn.functional.conv2d(*given, stride=(2, 3))
            y.backward(lib.tensor(g))
        found.append([a.detach().numpy() for a in (y, *[each.grad for each in given])])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


def test_a_gradient_by_steps_has_the_same_bits_without_the_other() -> None:
    """Which a budget may ask for one after the other, of whose products there may be one."""
    x, g = _numbers(2, 1, 20, 8, 8), _numbers(2, 1, 400, 4, 4, seed=1)
    weight = _numbers(1, 400, 20, 1, 1, seed=2)
    w = _window((8, 8), stride=(2, 2))._replace(out=(4, 4))
    dx, dw, alone, other = [np.empty_like(a) for a in (x, weight, x, weight)]
    assert conv_onednn.adjoint_and_weights(g, x, weight, dx, dw, w, None)
    assert conv_onednn.adjoint(g, weight, None, alone, w)
    assert conv_onednn.weights(g, x, other, w)
    np.testing.assert_array_equal(dx, alone)
    np.testing.assert_array_equal(dw, other)


def test_by_steps_a_gradient_is_the_same_whether_the_other_is_asked_for() -> None:
    x, weight, g = _numbers(16, 32, 8, 8), _numbers(32, 32, 1, 1), _numbers(16, 32, 3, 3)
    found: list[list[Any]] = []
    for wanted in [(True, True), (True, False), (False, True)]:
        given = [skimp.tensor(a, requires_grad=w) for a, w in zip((x, weight), wanted, strict=True)]
        skimp.nn.functional.conv2d(*given, stride=3).backward(skimp.tensor(g))
        found.append([each.grad for each in given])
    (dx, dw), (dx_alone, _), (_, dw_alone) = found
    assert skimp.equal(dx, dx_alone)
    assert skimp.equal(dw, dw_alone)
