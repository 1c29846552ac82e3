"""torch.mps: not available."""

from __future__ import annotations

from typing import Any, NoReturn

from skimp._compat import refusals

_REFUSED = (
    "Event",
    "compile_shader",
    "current_allocated_memory",
    "driver_allocated_memory",
    "get_rng_state",
    "recommended_max_memory",
    "set_per_process_memory_fraction",
    "set_rng_state",
)
__all__ = [
    "device_count",
    "empty_cache",
    "is_available",
    "manual_seed",
    "seed",
    "synchronize",
]
__getattr__ = refusals.names(__name__)
__all__.extend(_REFUSED)


def _refused(*_: Any, **__: Any) -> NoReturn:
    """Refused: there is no such device."""
    raise RuntimeError("torch.mps: skimp has no MPS backend; torch.mps.is_available() is False")


globals().update(dict.fromkeys(_REFUSED, _refused))


def is_available() -> bool:
    """Whether tensors can live on such a device: never."""
    return False


def device_count() -> int:
    """Number of such devices."""
    return 0


def empty_cache() -> None:
    """There is no cache."""


def synchronize(device: object = None) -> None:
    """There is no work to wait for."""


def manual_seed(seed: int) -> None:
    """There is nothing to seed."""


def seed() -> None:
    """There is nothing to seed."""
