"""What torch.cpu.amp and torch.cuda.amp share: names that are deprecated in PyTorch too."""

from __future__ import annotations

import warnings
from typing import ClassVar

from skimp.amp.grad_scaler import GradScaler

__all__ = ["DeviceScaler", "deprecated"]


def deprecated(device: str, name: str) -> None:
    """Warn whoever has called the caller."""
    warnings.warn(
        f"`torch.{device}.amp.{name}(args...)` is deprecated. Please use "
        f"`torch.amp.{name}('{device}', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class DeviceScaler(GradScaler):
    """A scaler that is told no device."""

    _own_device: ClassVar[str]

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        deprecated(self._own_device, "GradScaler")
        super().__init__(
            self._own_device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
