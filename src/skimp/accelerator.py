"""torch.accelerator: there is none."""

from __future__ import annotations

from typing import Any, NoReturn

from skimp._compat import refusals
from skimp._engine.tensor.devices import device

_REFUSED = (
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_index",
    "empty_cache",
    "get_device_capability",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
)
__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]
__getattr__ = refusals.names(__name__)
__all__.extend(_REFUSED)


def _refused(*_: Any, **__: Any) -> NoReturn:
    """Refused, with PyTorch's error of a machine without one."""
    raise RuntimeError("Cannot access accelerator device when none is available.")


globals().update(dict.fromkeys(_REFUSED, _refused))


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
