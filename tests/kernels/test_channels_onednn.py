"""Images times a number for each channel by oneDNN: NumPy's bits, or left to NumPy."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import activation, channels, channels_compiled, channels_onednn, onednn, teams
from skimp._kernels.threads import at_once
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]
SHAPES = [(2, 64, 32, 32), (16, 48, 8, 8), (5, 30, 7, 9), (3, 17, 33, 5), (16, 256, 4, 4)]
HOLDS = [None, (0, inf), (0, 6), (-1.5, 1.0)]


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels_onednn, "LEAST", 1 << 13)


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype="f4")


def _lines(channels: int, ndim: int) -> list[Array]:
    return [_numbers(channels, *(1,) * (ndim - 2), seed=s) for s in (1, 2, 3)]


def _by_numpy(x: Array, a: Array, b: Array, hold: Any = None, plus: Array | float = -0.0) -> Array:
    made = x * a + b + np.float32(plus)
    return made if hold is None else np.clip(made, *hold)


def _same(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got.view("i4"), want.view("i4"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1.0, 1e30, 1e-38])
def test_bits_are_those_of_one_operation_after_the_other(
    shape: tuple[int, ...], size: float
) -> None:
    x, g = _numbers(*shape) * np.float32(size), _numbers(*shape, seed=4)
    a, b, c = _lines(shape[1], len(shape))
    out = np.empty_like(x)
    for hold in HOLDS:
        assert channels_onednn.scaled(x, a, b, out, hold)
        with np.errstate(over="ignore"):
            _same(out, _by_numpy(x, a, b, hold))
    own = x.copy()
    assert channels_onednn.scaled(own, a, b, own, (0, inf))  # in place of what it reads
    with np.errstate(over="ignore"):
        _same(own, _by_numpy(x, a, b, (0, inf)))
        want = (x * b + c) + g * a
    assert channels_onednn.blended(g, x, out, a, b, c)
    _same(out, want)
    assert channels_onednn.blended(g, x, g, a, b, c)
    _same(g, want)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("by", ["oneDNN", "NumPy", "calls"])
def test_what_is_added_before_it_is_held(
    shape: tuple[int, ...], hold: Any, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_PART", 1 << 12)
    if by != "oneDNN":
        monkeypatch.setattr(channels_onednn, "takes", lambda dtype: False)
    x, plus = _numbers(*shape), _numbers(*shape, seed=4)
    a, b, _ = _lines(shape[1], len(shape))
    want = _by_numpy(x, a, b, hold, plus)
    for place in range(3):
        images = [x.copy(), plus.copy(), np.empty_like(x)]
        out = images[place]
        if by == "calls":
            at_once(channels.calls(images[0], a, b, images[1], hold=hold, out=out))
        else:
            channels.scaled(images[0], a, b, images[1], hold=hold, out=out)
        _same(out, want)


@pytest.mark.parametrize("bad", [np.nan, inf])
def test_what_is_added_is_finite_or_numpys(bad: float) -> None:
    x, plus = _numbers(2, 8, 32, 32), _numbers(2, 8, 32, 32, seed=4)
    a, b, _ = _lines(8, 4)
    out = np.empty_like(x)
    assert channels_onednn.scaled(x, a, b, out, (0, inf), plus)
    assert not channels_onednn.scaled(x, a, b, out, (0, inf), plus[:, :, :, ::-1])
    plus[1, 3, 5, 7] = bad
    assert not channels_onednn.scaled(x, a, b, out, (0, inf), plus)
    channels.scaled(x, a, b, plus, hold=(0, inf), out=out)
    np.testing.assert_array_equal(out, _by_numpy(x, a, b, (0, inf), plus))


@settings(max_examples=25)
@given(
    n=st.integers(1, 5), channels=st.integers(1, 40), places=st.integers(2, 400),
    team=st.integers(1, 3),
)  # fmt: skip
def test_bits_whoever_makes_it(n: int, channels: int, places: int, team: int) -> None:
    x = _numbers(n, channels, places)
    a, b, _ = _lines(channels, 3)
    out = np.empty_like(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels_onednn, "SHARED", 1)
        patch.setattr(teams, "size", lambda threads: team)
        if channels_onednn.scaled(x, a, b, out, (0, 6)):
            _same(out, _by_numpy(x, a, b, (0, 6)))
        else:
            assert x.size < 1 << 13


@pytest.mark.parametrize("bad", [np.nan, inf, -inf])
@pytest.mark.parametrize("where", ["x", "a", "b"])
def test_what_is_not_finite_stays_as_numpy_has_it(bad: float, where: str) -> None:
    x = _numbers(2, 8, 32, 32)
    a, b, _ = _lines(8, 4)
    {"x": x, "a": a, "b": b}[where].reshape(-1)[5] = bad
    out = np.empty_like(x)
    assert not channels_onednn.scaled(x, a, b, out, (0, inf))
    with np.errstate(invalid="ignore"):
        channels.scaled(x, a, b, hold=(0, inf), out=out)
        np.testing.assert_array_equal(out, _by_numpy(x, a, b, (0, inf)))


def _rectified_norm(x: Array) -> Array:
    """ReLU of batch norm in training."""
    with config.using(defer="always"), skimp.no_grad():
        y = skimp.nn.functional.batch_norm(skimp.tensor(x), None, None, training=True)
        return np.array(skimp.relu(y).numpy())


@pytest.mark.parametrize("bad", [[np.nan], [inf], [-inf], [inf, -inf], [3e38, 3e38], [1e30]])
def test_what_is_not_finite_shows_in_its_own_moments(
    bad: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = _numbers(2, 8, 32, 32)
    x[1, 3, 5, : len(bad)] = bad
    got = _rectified_norm(x)
    monkeypatch.setattr(channels_onednn, "takes", lambda dtype: False)
    want = _rectified_norm(x)
    np.testing.assert_array_equal(got, want)
    too_large = len(bad) > 1 and not channels_compiled.adds(x.dtype)
    assert np.isnan(want).any() == (not np.isfinite(bad).all() or too_large)


def test_only_what_has_other_moments_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[None] = []
    usual = channels_onednn._finite
    monkeypatch.setattr(channels_onednn, "_finite", lambda a: looked.append(None) or usual(a))
    x, (a, b, _) = _numbers(2, 8, 32, 32), _lines(8, 4)
    _rectified_norm(x)
    assert not looked
    out = np.empty_like(x)
    for own, plus, times in ((True, x, 1), (False, None, 1), (False, x, 2)):
        looked.clear()
        assert channels_onednn.scaled(x, a, b, out, (0, inf), plus, own)
        assert len(looked) == times


def test_the_sign_of_zero_stays() -> None:
    x, a, b = np.zeros((2, 8, 32, 32), "f4"), -np.ones((8, 1, 1), "f4"), _lines(8, 4)[1]
    b[3] = -0.0
    out = np.empty_like(x)
    channels.scaled(x, a, b, hold=(0, inf), out=out)
    _same(out, _by_numpy(x, a, b, (0, inf)))
    assert np.signbit(out[:, 3]).all()


def test_what_it_is_not_asked_for() -> None:
    x, (a, b, _) = _numbers(2, 8, 32, 32), _lines(8, 4)
    out = np.empty_like(x)
    row = np.zeros((1, 1, 1, 32), "f4")
    assert not channels_onednn.scaled(x.astype("f8"), a, b, out)
    assert not channels_onednn.scaled(x[:, :, ::2], a, b, out[:, :, ::2])
    assert not channels_onednn.scaled(x, np.broadcast_to(a, x.shape) + row, b, out)
    assert not channels_onednn.scaled(x, a[::-1], b, out)
    assert not channels_onednn.scaled(
        x[:1], a, b, x.reshape(-1)[64 : 64 + x[:1].size].reshape(x[:1].shape)
    )
    assert not channels_onednn.scaled(x[:1, :, :8], a, b, out[:1, :, :8])


def test_calls_of_c_do_the_same() -> None:
    for x in (_numbers(2, 8, 32, 32), _numbers(2, 8, 2, 2)):
        a, b, _ = _lines(8, 4)
        for hold in HOLDS:
            out = np.empty_like(x)
            listed = channels.calls(x, a, b, hold=hold, out=out)
            at_once(listed)
            _same(out, _by_numpy(x, a, b, hold))


@pytest.mark.parametrize("after", ["relu", "relu6", "relu_", "hardtanh", "leaky_relu"])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_whatever_the_settings(after: str, training: bool) -> None:
    found = []
    settings: list[dict[str, Any]] = [{"defer": d} for d in ("auto", "never", "always")]
    for setting in (*settings, {"threads": 1}, {"block": 1000}):
        with config.using(**setting):
            x = skimp.tensor(_numbers(4, 64, 32, 32), requires_grad=True)
            w, b = [skimp.tensor(v.reshape(-1), requires_grad=True) for v in _lines(64, 4)[:2]]
            mean, var = skimp.zeros(64), skimp.ones(64)
            y = skimp.nn.functional.batch_norm(x * 2, mean, var, w, b, training)
            y = getattr(skimp.nn.functional, after)(y)
            (y * y).sum().backward()
            found.append([t.detach().numpy() for t in (y, x.grad, w.grad, b.grad)])
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            _same(got, want)


def test_what_a_rectifier_lets_through_as_calls_of_c() -> None:
    for size in (1000, (1 << 19) + 777):
        x, g = np.maximum(_numbers(size), 0), _numbers(size, seed=1)
        x[5], x[7], g[3] = np.nan, -0.0, inf
        want = np.where(x <= 0, np.float32(0), g)
        at_once(activation.threshold_calls(g, x, 0.0, out=g))
        _same(g, want)
    assert not activation.threshold_calls(g.astype("f8"), x, out=g)


def test_a_rectifier_joins_what_it_reads() -> None:
    with config.using(defer="always"), skimp.no_grad():
        x = skimp.tensor(_numbers(2, 8, 32, 32))
        y = skimp.nn.functional.batch_norm(x, skimp.zeros(8), skimp.ones(8), training=False)
        for one, name in (
            (skimp.relu(y), "scaled_relu"),
            (skimp.nn.functional.relu6(y), "scaled_hardtanh"),
        ):
            expr = one._storage.deferred
            assert expr is not None
            assert (expr.kernel.name, expr.size) == (name, 1)


@pytest.mark.parametrize("shortcut", ["input", "line", "row", "number"])
@pytest.mark.parametrize("after", ["relu", "relu6", "nothing"])
@pytest.mark.parametrize("training", [True, False])
def test_a_sum_with_a_shortcut_whatever_the_settings(
    shortcut: str, after: str, training: bool
) -> None:
    found: list[list[bytes]] = []
    settings: list[dict[str, Any]] = [{"defer": d} for d in ("auto", "never", "always")]
    for setting in (*settings, {"threads": 1}, {"block": 1000}):
        with config.using(**setting):
            x = skimp.tensor(_numbers(4, 64, 32, 32), requires_grad=True)
            more = {
                "input": x, "number": 0.5, "row": skimp.tensor(_numbers(32)), "line": None,
            }[shortcut]  # fmt: skip
            w, b = [skimp.tensor(v.reshape(-1), requires_grad=True) for v in _lines(64, 4)[:2]]
            means = skimp.zeros(64), skimp.ones(64)
            norm = skimp.nn.functional.batch_norm
            y = norm(x * 0.5, *means, w, b, training)
            y += norm(x, *means, w, None, training) if more is None else more
            y = y if after == "nothing" else getattr(skimp.nn.functional, after)(y)
            (y * y).sum().backward()
            found.append([each.detach().numpy().tobytes() for each in (y, x.grad, w.grad, b.grad)])
    assert all([each == found[0] for each in found])


def test_a_sum_with_a_shortcut_is_one_call() -> None:
    """And writes over what it adds, where nobody else has that."""
    x = skimp.tensor(_numbers(4, 64, 32, 32))
    with config.using(defer="auto"), skimp.no_grad():
        more = x.clone()
        before = skimp.cuda.memory_allocated()
        skimp.cuda.reset_peak_memory_stats()
        y = skimp.nn.functional.batch_norm(x, skimp.zeros(64), skimp.ones(64))
        y += more
        del more
        y = skimp.relu(y)
        assert y._storage.deferred.kernel.name == "scaled_add_relu"
        assert skimp.cuda.max_memory_allocated() - before < 0.1 * x.nbytes
        want = np.maximum(x.numpy() * (1 + 1 / np.sqrt(np.float32(1 + 1e-5))), 0)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
