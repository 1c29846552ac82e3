"""Fourier transforms against torch's: values, types, shapes, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp

STEMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL_INPUT = ("rfft", "ihfft")
DTYPES = ("float32", "float64", "complex64", "complex128", "int64", "bool")


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    a = draw.normal(size=shape) * 3
    if dtype.startswith("complex"):
        a = a + 1j * draw.normal(size=shape)
    return a.astype(dtype)


def both(a: Any) -> tuple[Any, Any]:
    return skimp.tensor(a), torch.tensor(a)


def refusal(call: Any, lib: Any) -> tuple[Any, str]:
    """What is raised, without the frames that would keep tensors alive."""
    try:
        call(lib)
    except (RuntimeError, TypeError, IndexError) as e:
        return type(e), str(e)[:18]
    return None, ""


def same(ours: Any, theirs: Any, tolerance: float | None = None) -> None:
    assert str(ours.dtype)[-9:] == str(theirs.dtype)[-9:]
    assert tuple(ours.shape) == tuple(theirs.shape)
    single = theirs.dtype in (torch.float32, torch.complex64)
    eps = tolerance or (2e-5 if single else 1e-10)
    np.testing.assert_allclose(
        ours.detach().resolve_conj().numpy(), theirs.detach().resolve_conj().numpy(), eps, eps * 10
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stem", STEMS)
def test_values_types_and_shapes(stem: str, dtype: str) -> None:
    if stem in REAL_INPUT and dtype.startswith("complex"):
        pytest.skip("takes real tensors")
    x, y = both(numbers((3, 4, 5), dtype))
    for norm in (None, "backward", "ortho", "forward"):
        for n in (None, 3, 8):
            for dim in (-1, 1):
                f, g = getattr(skimp.fft, stem), getattr(torch.fft, stem)
                same(f(x, n, dim, norm), g(y, n, dim, norm))
        for end, calls in (
            ("2", ({}, {"s": (3, 6)}, {"dim": (0, 1)})),
            ("n", ({}, {"s": (3, -1)}, {"dim": (0, 2)}, {"s": (2, 7), "dim": (2, 0)})),
        ):
            for call in calls:
                f, g = getattr(skimp.fft, stem + end), getattr(torch.fft, stem + end)
                same(f(x, norm=norm, **call), g(y, norm=norm, **call))


@pytest.mark.parametrize("end", ["", "2", "n"])
@pytest.mark.parametrize("stem", STEMS)
def test_first_and_second_derivatives(stem: str, end: str) -> None:
    kinds = ("float64",) if stem in REAL_INPUT else ("float64", "complex128")
    for dtype in kinds:
        found = []
        for lib in (skimp, torch):
            x = lib.tensor(numbers((3, 4, 5), dtype)).requires_grad_()
            made = getattr(lib.fft, stem + end)(x, norm="ortho")
            (g,) = lib.autograd.grad((made.abs() ** 3).sum(), x, create_graph=True)
            (h,) = lib.autograd.grad((g.abs() ** 2).sum(), x)
            found.append((g, h))
        for ours, theirs in zip(*found, strict=True):
            same(ours, theirs, 1e-8)


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 7):
        same(skimp.fft.fftfreq(n, 0.5), torch.fft.fftfreq(n, 0.5))
        same(skimp.fft.rfftfreq(n), torch.fft.rfftfreq(n))
        same(skimp.fft.fftfreq(n, dtype=skimp.float64), torch.fft.fftfreq(n, dtype=torch.float64))
    x, y = both(numbers((4, 5), "int64"))
    for dim in (None, 0, (0, 1), -1):
        same(skimp.fft.fftshift(x, dim), torch.fft.fftshift(y, dim))
        same(skimp.fft.ifftshift(x, dim), torch.fft.ifftshift(y, dim))


def test_out() -> None:
    x, y = both(numbers((3, 4), "float32"))
    out, theirs = skimp.empty(0, dtype=skimp.complex64), torch.empty(0, dtype=torch.complex64)
    assert skimp.fft.rfft(x, out=out) is out
    same(out, torch.fft.rfft(y, out=theirs))


@pytest.mark.parametrize(
    "call",
    [
        lambda lib: lib.fft.rfft(lib.ones(3, dtype=lib.complex64)),
        lambda lib: lib.fft.fft(lib.ones(3), 0),
        lambda lib: lib.fft.fft(lib.ones(3), norm="none"),
        lambda lib: lib.fft.fft(lib.ones(3), dim=4),
        lambda lib: lib.fft.fftn(lib.ones(3, 3), dim=(0, 0)),
        lambda lib: lib.fft.fftn(lib.ones(3, 3), s=(1, 2, 3)),
        lambda lib: lib.fft.fft(lib.ones(3, dtype=lib.float16)),
        lambda lib: lib.fft.irfftn(lib.ones(3, 3), dim=()),
    ],
)
def test_refusals(call: Any) -> None:
    theirs = refusal(call, torch)
    assert theirs[0] is not None
    assert refusal(call, skimp) == theirs
