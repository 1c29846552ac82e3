"""torch.xpu: not available."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from skimp._compat import refusals

_REFUSED = (
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "init",
    "initial_seed",
    "mem_get_info",
    "set_device",
)
_NOTHING = (
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
)
__all__ = [
    "device",
    "device_count",
    "empty_cache",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "stream",
    "synchronize",
]
__getattr__ = refusals.names(__name__)
__all__.extend(_REFUSED)
__all__.extend(_NOTHING)


def _refused(*_: Any, **__: Any) -> NoReturn:
    """Refused, with PyTorch's error of a build without XPU."""
    raise AssertionError(
        "Torch not compiled with XPU enabled: skimp has no such backend; use device='cpu'"
    )


def _nothing(device: Any = None) -> int:
    """Bytes on such a device: there is none."""
    return 0


globals().update(dict.fromkeys(_REFUSED, _refused))
globals().update(dict.fromkeys(_NOTHING, _nothing))


def is_available() -> bool:
    """Whether tensors can live on such a device: never."""
    return False


is_initialized = is_available


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether such a device multiplies bfloat16: there is none."""
    return False


def device_count() -> int:
    """Number of such devices."""
    return 0


def device(device: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which that device is the current one: it changes nothing."""
    return contextlib.nullcontext()


def stream(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which that stream is the current one: it changes nothing."""
    return contextlib.nullcontext()


def empty_cache() -> None:
    """There is no cache."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """There is nothing to count."""


def synchronize(device: object = None) -> None:
    """There is no work to wait for."""


def manual_seed(seed: int) -> None:
    """There is nothing to seed."""


manual_seed_all = manual_seed


def seed() -> None:
    """There is nothing to seed."""


seed_all = seed
