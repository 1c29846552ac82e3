"""The weights' gradient of depthwise convolutions whose kernels oneDNN has no code for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skimp._kernels import conv_depthwise, conv_onednn, onednn
from skimp._kernels.im2col import Window, out_size
from tests.kernels.windows import by_pytorch, numbers, same_bits_on_two_threads

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
Array = np.ndarray[Any, Any]


def _window(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    apart: int = 1,
) -> Window:
    steps = [(each,) * len(size) for each in (stride, padding, apart)]
    return Window(size, kernel, *steps, out_size(size, kernel, *steps))


def _made(x: Array, weight: Array, bias: Array, g: Array, w: Window, dtype: str) -> list[Array]:
    """The result and the gradients of input, weight and bias."""
    n, count = x.shape[:2]
    images, kernels, places = [a.astype(dtype) for a in (x[:, :, None], weight[:, :, None], g)]
    y, dx = np.empty((n, count, 1, *w.out), dtype), np.empty((n, count, 1, *w.size), dtype)
    dw, db = np.empty((count, 1, 1, *w.kernel), dtype), np.empty((count, 1), dtype)
    assert conv_onednn.forward(images, kernels, bias.astype(dtype)[:, None], y, w)
    assert conv_onednn.adjoint(places[:, :, None], kernels, None, dx, w)
    assert conv_onednn.weights(places[:, :, None], images, dw, w, db)
    return [y[:, :, 0], dx[:, :, 0], dw[:, 0], db[:, 0]]


def _given(n: int, count: int, w: Window) -> list[Array]:
    shapes = (n, count, *w.size), (count, 1, *w.kernel), (count,), (n, count, *w.out)
    return [numbers(seed, *shape) for seed, shape in enumerate(shapes)]


WINDOWS = [
    _window((12, 11), (7, 7), padding=3),
    _window((13,), (5,), padding=2),
    _window((50,), (31,), padding=15),
    _window((19, 20), (3, 3), padding=9, apart=9),
    _window((17, 9), (5, 3), stride=2, padding=1),
    _window((16, 16), (3, 3), padding=2, apart=2),
    _window((15, 14), (2, 5), stride=3, apart=2),
    _window((40, 40), (7, 7), stride=2, padding=3),
    _window((7, 8, 6), (5, 4, 3), padding=1),
]


@pytest.mark.parametrize("w", WINDOWS, ids=str)
@pytest.mark.parametrize(("n", "count"), [(1, 2), (3, 16), (9, 40)])
def test_values_are_pytorchs_whatever_the_window(w: Window, n: int, count: int) -> None:
    given = _given(n, count, w)
    wanted = by_pytorch(*given, w, count)
    for found, right in zip(_made(*given, w, "f4"), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
    for found, right in zip(_made(*given, w, "f2"), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-2, atol=0.2)


@pytest.mark.parametrize("w", WINDOWS, ids=str)
def test_bits_are_the_same_on_two_threads(w: Window) -> None:
    """(9, 40) at 40 x 40 is worked on in several parts."""
    given = _given(9, 40, w)
    same_bits_on_two_threads(lambda: _made(*given, w, "f4"))


def test_channels_last_and_both_gradients_at_once() -> None:
    w = WINDOWS[0]
    given = _given(4, 24, w)
    x, weight, _, g = [a.astype("f4") for a in given]
    _, dx, dw, _ = _made(*given, w, "f4")
    x, g = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for a in (x, g)]
    to_x, to_weight = np.empty((4, 24, 1, *w.size), "f4"), np.empty((24, 1, 1, *w.kernel), "f4")
    places, images = g[:, :, None], x[:, :, None]
    both = places, images, weight[:, :, None], to_x, to_weight, w, None
    assert conv_onednn.adjoint_and_weights(*both)
    np.testing.assert_array_equal(to_weight[:, 0], dw)
    np.testing.assert_array_equal(to_x[:, :, 0], dx)


# but for what has both steps and dilation, and for three dims
QUICK = [w for w in WINDOWS if len(w.size) < 3 and not max(w.stride) > 1 < max(w.dilation)]


@pytest.mark.parametrize("w", QUICK, ids=str)
def test_no_matrices_of_one_row_are_multiplied(w: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """That took thirty times as long."""
    seen: list[Any] = []
    make = conv_onednn._make

    def note(found: list[Any], asked: Any) -> None:
        seen.extend([works[0] for (face, *_), works in zip(asked, found, strict=True)])
        make(found, asked)

    monkeypatch.setattr(conv_onednn, "_make", note)
    _made(*_given(3, 32, w), w, "f4")
    assert len(seen) == 3
    assert not [work for work in seen if work.slow]


def test_what_is_worked_on_at_once_is_bounded() -> None:
    w = _window((64, 64), (5, 5), padding=2)
    whole = np.zeros((3, 200), int)
    for images, some in conv_depthwise._parts(3, 200, w):
        whole[images, some] += 1
        assert whole[images, some].size * 68 * 68 <= conv_depthwise._ROOM
    np.testing.assert_array_equal(whole, 1)
