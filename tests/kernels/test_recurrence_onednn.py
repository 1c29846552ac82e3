"""Steps of recurrent nets by oneDNN: values, and bits whoever makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from skimp._kernels import onednn, recurrence_onednn, teams
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]
SCALE = np.array([0.5, 0.5, 1.0, 0.5], "f4").reshape(4, 1, 1)


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype="f4")


def _all(gates: int, batch: int, depth: int, hidden: int, ends: int) -> list[Array]:
    """A step's gates, those of the input of three steps, and a product back."""
    weights = _numbers(gates * hidden, depth) / np.float32(depth**0.5)
    h, into = _numbers(batch, depth, seed=1), _numbers(gates, batch, hidden, seed=2)
    numbers = (SCALE[:gates], 1 - SCALE[:gates]) if ends == 2 else None
    x, shares = _numbers(3, batch, depth, seed=3), _numbers(3, gates, batch, hidden, seed=4)
    d, out = _numbers(batch, gates * hidden, seed=5), np.empty((batch, depth), "f4")
    with (
        recurrence_onednn.activation(weights, gates, batch, ends > 0, numbers) as step,
        recurrence_onednn.projection(weights, gates, batch, 3) as project,
        recurrence_onednn.product(d, weights, out) as back,
    ):
        assert step is not None
        assert project is not None
        step(h, into)
        project(x, shares)
        if back is not None:  # its sums are longer
            back(d)
    return [into, shares, out if back is not None else h]


@settings(max_examples=8, deadline=None)
@given(
    gates=st.integers(1, 4), batch=st.integers(32, 50), depth=st.integers(128, 300),
    hidden=st.integers(128, 200), ends=st.integers(0, 2),
)  # fmt: skip
def test_values_and_bits_whoever_makes_them(
    gates: int, batch: int, depth: int, hidden: int, ends: int
) -> None:
    threads, until = config.threads, teams.account.until
    made = []
    try:
        for config.threads in (1, 2, 3):
            teams.account.until = 0.0
            made.append(_all(gates, batch, depth, hidden, ends))
    finally:
        config.threads, teams.account.until = threads, until
    for others in made[1:]:
        assert all(map(np.array_equal, made[0], others))
    weights = (_numbers(gates * hidden, depth) / np.float32(depth**0.5)).astype("f8")
    each = weights.reshape(gates, hidden, depth)
    want = np.einsum("nk,ghk->gnh", _numbers(batch, depth, seed=1), each)
    want += _numbers(gates, batch, hidden, seed=2)
    if ends == 1:
        want = np.tanh(want)
    elif ends == 2:
        want = np.tanh(want * SCALE[:gates]) * SCALE[:gates] + 1 - SCALE[:gates]
    assert np.abs(made[0][0] - want).max() < 1e-5
    want = np.einsum("tnk,ghk->tgnh", _numbers(3, batch, depth, seed=3), each)
    assert np.abs(made[0][1] - want - _numbers(3, gates, batch, hidden, seed=4)).max() < 1e-5
    if gates * hidden <= recurrence_onednn._DEEP:
        want = _numbers(batch, gates * hidden, seed=5) @ weights
        assert np.abs(made[0][2] - want).max() < 1e-4


def test_what_is_left_to_others() -> None:
    """Small steps, long sums, other types, single rows."""
    for gates, batch, depth, hidden, dtype in (
        (4, 2, 16, 16, "f4"),
        (4, 16, 1025, 64, "f4"),
        (4, 16, 128, 128, "f8"),
        (4, 1, 512, 512, "f4"),
    ):
        weights = np.zeros((gates * hidden, depth), dtype)
        with recurrence_onednn.activation(weights, gates, batch, False) as step:
            assert step is None


def test_nan_and_infinities_go_through() -> None:
    weights, h = np.zeros((4 * 128, 64), "f4"), np.zeros((16, 64), "f4")
    into = np.zeros((4, 16, 128), "f4")
    into[0, 0, :3] = np.nan, np.inf, -np.inf
    line = np.ones((4, 1, 1), "f4"), np.zeros((4, 1, 1), "f4")
    with recurrence_onednn.activation(weights, 4, 16, True, line) as step:
        assert step is not None
        step(h, into)
    assert np.isnan(into[0, 0, 0])
    assert into[0, 0, 1:3].tolist() == [1, -1]


def test_a_team_that_is_late_leaves_the_rest_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, h = _numbers(4 * 128, 128), _numbers(16, 128, seed=1)
    ended = []
    monkeypatch.setattr(config, "threads", 2)
    monkeypatch.setattr(teams.account, "until", 0.0)
    monkeypatch.setattr(teams, "end", ended.append)
    with recurrence_onednn.activation(weights, 4, 16, False) as step:
        assert step is not None
        for _ in range(4):
            step(h, _numbers(4, 16, 128))
        assert len(ended) == 1
        monkeypatch.setattr(teams.account, "until", float("inf"))
        for _ in range(9):
            step(h, _numbers(4, 16, 128))
    assert len(ended) == 2
