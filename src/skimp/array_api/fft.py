"""The standard's extension for Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import skimp as torch
from skimp import Tensor
from skimp._engine.tensor.dtypes import dtype as Dtype

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip


def _one(name: str) -> Callable[..., Tensor]:
    of = getattr(torch.fft, name)

    def transform(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        result: Tensor = of(x, n=n, dim=axis, norm=norm)
        return result

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = of.__doc__
    return transform


def _several(name: str) -> Callable[..., Tensor]:
    of = getattr(torch.fft, name)

    def transform(
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Tensor:
        result: Tensor = of(x, s=s, dim=axes, norm=norm)
        return result

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = of.__doc__
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_several, ("fftn", "ifftn", "rfftn", "irfftn"))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Dtype | None = None, device: Any = None) -> Tensor:
    """The frequencies of a transform's elements."""
    return torch.fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: Dtype | None = None, device: Any = None
) -> Tensor:
    """The frequencies of a real transform's elements."""
    return torch.fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Frequency zero moved to the middle."""
    return torch.fft.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Frequency zero moved from the middle to the front."""
    return torch.fft.ifftshift(x, axes)
