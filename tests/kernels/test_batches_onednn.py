"""Products of batches by oneDNN: as exact as NumPy's, and the same bits whoever makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import skimp
from skimp._kernels import batches_onednn, onednn, teams
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
WORTH = 1 << 22


def _numbers(shape: Ints, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype="f4")


def _matrices(batch: Ints, rows: int, columns: int, lies: str, seed: int) -> Array:
    """Numbers that lie row by row, turned, or as heads beside each other."""
    if lies == "heads" and len(batch) == 2:
        n, heads = batch
        return _numbers((n, rows, 3, heads, columns), seed)[:, :, 1].transpose(0, 2, 1, 3)
    if lies == "turned":
        return _numbers((*batch, columns, rows), seed).swapaxes(-1, -2)
    return _numbers((*batch, rows, columns), seed)


@settings(max_examples=25)
@given(
    n=st.integers(2, 12), heads=st.integers(1, 6), m=st.integers(2, 130), k=st.integers(2, 130),
    columns=st.integers(2, 130), one=st.sampled_from(["rows", "turned", "heads"]),
    other=st.sampled_from(["rows", "turned", "heads"]), flat=st.booleans(),
)  # fmt: skip
def test_values_and_bits_whoever_makes_them(
    n: int, heads: int, m: int, k: int, columns: int, one: str, other: str, flat: bool
) -> None:
    batch = (n * heads,) if flat else (n, heads)
    a, b = _matrices(batch, m, k, one, 0), _matrices(batch, k, columns, other, 1)
    want = a.astype("f8") @ b.astype("f8")
    found = []
    for threads in (1, 2, 3, 4):
        out = np.full((*batch, m, columns), np.nan, "f4")
        if not batches_onednn.multiply(a, b, out, threads):
            assert a.size * columns < WORTH
            return
        found.append(out)
    assert np.abs(found[0] - want).max() <= 1e-6 * k
    for out in found[1:]:
        np.testing.assert_array_equal(out, found[0])


def test_a_team_has_whole_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(teams, "size", lambda threads, long: threads)
    make = batches_onednn._runs.__wrapped__
    monkeypatch.setattr(batches_onednn, "_runs", lambda *of: asked.append(of[-1]) or make(*of))
    for batch in (12, 13):
        a, b = _numbers((batch, 64, 128), 0), _numbers((batch, 128, 64), 1)
        assert batches_onednn.multiply(a, b, np.empty((batch, 64, 64), "f4"), 8)
    assert asked == [1, 4, 1, 1]  # first, whether there is any


@pytest.mark.parametrize("threads", [1, 2])
def test_what_it_is_not_asked_for(threads: int) -> None:
    a, b = _numbers((16, 64, 128), 0), _numbers((16, 128, 64), 1)
    out = np.empty((16, 64, 64), "f4")
    assert batches_onednn.multiply(a, b, out, threads)
    few = a[:2], b[:2], out[:2]
    repeated = np.broadcast_to(a[:1], a.shape), b, out
    wide = a.astype("f8"), b, out
    gaps = _numbers((16, 64, 256), 0)[..., ::2], b, out
    deep = _numbers((16, 64, 1100), 0), _numbers((16, 1100, 64), 0), out
    for case in (few, repeated, wide, gaps, deep):
        assert not batches_onednn.multiply(*case, threads)


def test_attention_written_out_has_its_bits_whatever_the_settings() -> None:
    found = []
    modes: list[dict[str, Any]] = [{"defer": d} for d in ("auto", "never", "always")]
    for setting in (*modes, {"threads": 1}, {"threads": 3}, {"small_below": 16}):
        with config.using(**setting):
            qkv = skimp.tensor(_numbers((12, 64, 3, 4, 32), 0), requires_grad=True)
            q, k, v = [x.transpose(1, 2) for x in qkv.unbind(2)]
            y = skimp.softmax(q @ k.transpose(-2, -1) * 0.2, -1) @ v
            (y * skimp.tensor(_numbers((12, 4, 64, 32), 1))).sum().backward()
            found.append((y.detach().numpy(), qkv.grad.numpy()))
    for y, g in found[1:]:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(g, found[0][1])
