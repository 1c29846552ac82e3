"""Fourier transforms in single precision are NumPy's in single precision, whatever lies where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from skimp._kernels import fourier

CALLS: dict[str, Any] = {
    "fft": lambda a, norm: fourier.along(a, 1, norm, True),
    "ifft": lambda a, norm: fourier.along(a, 1, norm, False),
    "rfft": lambda a, norm: fourier.half(a.real, 1, norm),
    "irfft": lambda a, norm: fourier.whole(a, 9, 1, norm),
    "irfft, cut": lambda a, norm: fourier.whole(a, 4, 1, norm),
}


@pytest.mark.parametrize("norm", ["none", "ortho", "all"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_single_precision_is_not_cast(
    call: Any, norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    made_by = fourier._ufuncs()
    seen: list[np.dtype[Any]] = []

    def noted(name: str) -> Any:
        def run(a: Any, factor: Any, **words: Any) -> Any:
            seen.extend((a.dtype, np.asarray(factor).dtype, words["out"].dtype))
            return getattr(made_by, name)(a, factor, **words)

        return run

    names = ("fft", "ifft", "irfft", "rfft_n_even", "rfft_n_odd")
    told = SimpleNamespace(**{n: noted(n) for n in names})
    monkeypatch.setattr(fourier, "_ufuncs", lambda: told)
    for n in (5, 8):
        wide = draw.normal(size=(3, n, 2)) + 1j * draw.normal(size=(3, n, 2))
        for a in (wide, wide.transpose(2, 1, 0), wide[:, ::-1]):
            single, double = call(a.astype(np.complex64), norm), call(a, norm)
            np.testing.assert_allclose(single, double, rtol=0, atol=2e-6)
            assert single.dtype.itemsize * 2 == double.dtype.itemsize
    assert set(seen) <= {np.dtype("f4"), np.dtype("c8")}
    assert seen
