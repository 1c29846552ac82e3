"""Fourier transforms against torch's: values, types, shapes, gradients, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import agree, refusals, same

STEMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL_INPUT = ("rfft", "ihfft")
DTYPES = ("float32", "float64", "complex64", "complex128", "int64", "bool")


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    a = draw.normal(size=shape) * 3
    if dtype.startswith("complex"):
        a = a + 1j * draw.normal(size=shape)
    return a.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stem", STEMS)
def test_values_types_and_shapes(stem: str, dtype: str) -> None:
    if stem in REAL_INPUT and dtype.startswith("complex"):
        pytest.skip("takes real tensors")
    x = torch.tensor(numbers((3, 4, 5), dtype))
    calls: list[tuple[str, dict[str, Any]]] = [
        *[(stem, {"n": n, "dim": dim}) for n in (None, 3, 8) for dim in (-1, 1)],
        *[(stem + "2", call) for call in ({}, {"s": (3, 6)}, {"dim": (0, 1)})],
        *[(stem + "n", call) for call in ({}, {"s": (3, -1)}, {"dim": (0, 2)})],
        (stem + "n", {"s": (2, 7), "dim": (2, 0)}),
    ]
    for norm, (name, call) in itertools.product((None, "backward", "ortho", "forward"), calls):

        def transformed(lib: Any, x: Any) -> Any:
            return getattr(lib.fft, name)(x, norm=norm, **call)  # noqa: B023

        agree(transformed, x, tolerance=None)


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
            same(ours, theirs, 1e-7, strides=False)


@pytest.mark.parametrize("stem", ["fft", "ifft", "rfft", "irfft", "ihfft"])
def test_dims_of_one_stride_lie_in_pytorchs_order(stem: str) -> None:
    for dim in (0, 1):
        found = []
        for lib in (skimp, torch):
            x = lib.arange(24.0).reshape(4, 6)
            inputs = (
                x[..., None],
                x.unfold(1, 2, 1),
                x[:, :1, None].expand(4, 3, 5),
                x.t()[..., None],
            )
            found.append([getattr(lib.fft, stem)(one, dim=dim).stride() for one in inputs])
        assert found[0] == found[1]


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 7):
        agree(lambda lib: lib.fft.fftfreq(n, 0.5))  # noqa: B023
        agree(lambda lib: lib.fft.rfftfreq(n))  # noqa: B023
        agree(lambda lib: lib.fft.fftfreq(n, dtype=lib.float64))  # noqa: B023
    for n, d in ((0, 1.0), (4, 0), (4, -0.0), (0, 0.0), (5, float("inf"))):
        agree(lambda lib: lib.fft.fftfreq(n, d))  # noqa: B023
        agree(lambda lib: lib.fft.rfftfreq(n, d))  # noqa: B023
    for dim in (None, 0, (0, 1), -1):
        x = torch.tensor(numbers((4, 5), "int64"))
        agree(lambda lib, x: lib.fft.fftshift(x, dim), x)  # noqa: B023
        agree(lambda lib, x: lib.fft.ifftshift(x, dim), x)  # noqa: B023


def test_out() -> None:
    x, y = (lib.tensor(numbers((3, 4), "float32")) for lib in (skimp, torch))
    out, theirs = skimp.empty(0, dtype=skimp.complex64), torch.empty(0, dtype=torch.complex64)
    assert skimp.fft.rfft(x, out=out) is out
    same(out, torch.fft.rfft(y, out=theirs), None)


@pytest.mark.parametrize(
    ("refused", "call"),
    refusals(
        {
            RuntimeError: [
                lambda lib: lib.fft.rfft(lib.ones(3, dtype=lib.complex64)),
                lambda lib: lib.fft.fft(lib.ones(3), 0),
                lambda lib: lib.fft.fft(lib.ones(3), norm="none"),
                lambda lib: lib.fft.fftn(lib.ones(3, 3), dim=(0, 0)),
                lambda lib: lib.fft.fftn(lib.ones(3, 3), s=(1, 2, 3)),
                lambda lib: lib.fft.fft(lib.ones(3, dtype=lib.float16)),
                lambda lib: lib.fft.irfftn(lib.ones(3, 3), dim=()),
            ],
            IndexError: [lambda lib: lib.fft.fft(lib.ones(3), dim=4)],
        }
    ),
)
def test_refusals(refused: type[Exception], call: Any) -> None:
    agree(call, refused=refused, message=18)
