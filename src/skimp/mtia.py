"""torch.mtia: not available."""

from __future__ import annotations

from skimp._compat import refusals

__all__ = ["device_count", "empty_cache", "is_available", "is_initialized", "synchronize"]
__getattr__ = refusals.names(__name__)


def is_available() -> bool:
    """Whether tensors can live on such a device: never."""
    return False


def is_initialized() -> bool:
    """Whether the device was prepared: never."""
    return False


def device_count() -> int:
    """Number of such devices."""
    return 0


def empty_cache() -> None:
    """There is no cache."""


def synchronize(device: object = None) -> None:
    """There is no work to wait for."""
