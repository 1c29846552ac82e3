"""torch.accelerator: there is none."""

from __future__ import annotations

from skimp.devices import device

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Whether there is an accelerator."""
    return False


def device_count() -> int:
    """Number of accelerators."""
    return 0


def current_accelerator(check_available: bool = False) -> device | None:
    """The accelerator that programs should use: none."""
    return None


def synchronize(device: object = None) -> None:
    """There is no work to wait for."""
