"""Windows, and spectra of frames: torch's values, refusals and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import agree, refusals, same_gradients

OLD: dict[str, tuple[Any, ...]] = {
    "hann_window": (), "hamming_window": (0.6, 0.3), "bartlett_window": (),
    "blackman_window": (), "kaiser_window": (7.5,),
}  # fmt: skip
NEW: dict[str, dict[str, Any]] = {
    "hann": {}, "hamming": {}, "bartlett": {}, "blackman": {}, "nuttall": {}, "cosine": {},
    "exponential": {"tau": 2.5}, "gaussian": {"std": 1.5}, "kaiser": {"beta": 8.0},
    "general_cosine": {"a": [0.3, 0.5, 0.2]}, "general_hamming": {"alpha": 0.7},
}  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OLD)
def test_windows(name: str, dtype: str, n: int) -> None:
    for periodic in (True, False):
        agree(
            lambda lib, p=periodic: getattr(lib, name)(n, p, *OLD[name], dtype=getattr(lib, dtype)),
            tolerance=2e-6 if dtype == "float32" else 1e-14,
        )


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("name", NEW)
def test_signal_windows(name: str, n: int) -> None:
    for sym in (True, False):
        for dtype in ("float32", "float64"):
            agree(
                lambda lib, s=sym, d=dtype: getattr(lib.signal.windows, name)(
                    n, sym=s, dtype=getattr(lib, d), **NEW[name]
                ),
                tolerance=1e-6 if dtype == "float32" else 1e-13,
            )


REFUSED: dict[type[Exception], dict[str, Any]] = {
    RuntimeError: {
        "negative": lambda lib: lib.hann_window(-1),
        "integers": lambda lib: lib.hann_window(4, dtype=lib.int64),
        "return_complex": lambda lib: lib.stft(lib.ones(10), 4),
        "rank": lambda lib: lib.stft(lib.ones(2, 2, 10), 4, return_complex=True),
        "frame too long": lambda lib: lib.stft(lib.ones(9), 12, return_complex=True, center=False),
        "hop": lambda lib: lib.stft(lib.ones(9), 4, hop_length=0, return_complex=True),
        "window": lambda lib: lib.stft(lib.ones(9), 4, window=lib.ones(5), return_complex=True),
        "onesided": lambda lib: lib.stft(lib.ones(9).cfloat(), 4, onesided=True),
        "real spectrum": lambda lib: lib.istft(lib.ones(3, 3), 4),
        "frequencies": lambda lib: lib.istft(lib.ones(5, 3).cfloat(), 4),
        "no overlap": lambda lib: lib.istft(lib.ones(3, 3).cfloat(), 4, window=lib.zeros(4)),
        "complex half": lambda lib: lib.istft(lib.ones(3, 3).cfloat(), 4, return_complex=True),
    },
    TypeError: {"number for list": lambda lib: lib.signal.windows.general_cosine(3, a=0.5)},
    ValueError: {
        "negative, new": lambda lib: lib.signal.windows.hann(-1),
        "integers, new": lambda lib: lib.signal.windows.hann(3, dtype=lib.int64),
        "no weights": lambda lib: lib.signal.windows.general_cosine(3, a=[]),
        "beta": lambda lib: lib.signal.windows.kaiser(3, beta=-1),
        "center": lambda lib: lib.signal.windows.exponential(3, center=1),
        "tau": lambda lib: lib.signal.windows.exponential(3, tau=0),
        "std": lambda lib: lib.signal.windows.gaussian(3, std=0),
    },
}


@pytest.mark.parametrize(("error", "case"), refusals(REFUSED))
def test_refusals(error: Any, case: Any) -> None:
    agree(case, refused=error, message=5)


FORMS: dict[str, dict[str, Any]] = {
    "plain": {}, "hop": {"hop_length": 3}, "short window": {"win_length": 5, "hop_length": 1},
    "not centered": {"center": False}, "normalized": {"normalized": True},
    "both sides": {"onesided": False},
}  # fmt: skip


@pytest.mark.parametrize("case", FORMS)
def test_stft_and_back(case: str) -> None:
    words = FORMS[case]
    for shape in ((20,), (2, 33)):
        x = torch.randn(shape, dtype=torch.float64)
        window = torch.hann_window(words.get("win_length", 8), dtype=torch.float64) + 0.1
        for w in (None, window):

            def forward(lib: Any, x: Any, w: Any) -> Any:
                return lib.stft(x, 8, window=w, return_complex=True, **words)

            agree(forward, x, w, tolerance=1e-9)
            for length in (None, 11, 60):
                agree(
                    lambda lib, z, w, n=length: lib.istft(z, 8, window=w, length=n, **words),
                    forward(torch, x, w),
                    w,
                    tolerance=1e-9,
                    message=5,
                    refused="window overlap add min",
                )


def test_stft_of_complex_and_as_pairs() -> None:
    x = torch.randn(20, dtype=torch.complex128)
    agree(lambda lib, x: lib.stft(x, 6), x, tolerance=1e-9)
    agree(lambda lib, x: lib.stft(x.real, 6, return_complex=False), x, tolerance=1e-9)
    agree(
        lambda lib, x: lib.stft(
            x, 6, win_length=4, center=False, align_to_window=True, return_complex=True
        ),
        x.real.clone(),
        tolerance=1e-9,
    )


def test_gradients_through_frames() -> None:
    x, w = torch.randn(2, 11, dtype=torch.float64), torch.rand(6, dtype=torch.float64)

    def there(lib: Any, x: Any, w: Any) -> Any:
        return lib.stft(x, 6, 2, window=w, return_complex=True)

    same_gradients(lambda lib, x, w: lib.view_as_real(there(lib, x, w)), x, w)
    same_gradients(lambda lib, x, w: lib.istft(there(lib, x, w), 6, 2, window=w), x, w)


def test_a_long_signal_comes_back() -> None:
    x = skimp.randn(3, 20000)
    w = skimp.hann_window(512)
    z = skimp.stft(x, 512, 128, window=w, return_complex=True)
    back = skimp.istft(z, 512, 128, window=w, length=20000)
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-5)
