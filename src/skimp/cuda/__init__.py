"""torch.cuda on a machine without CUDA: not available, and its memory counters count the host.

Scripts that measure themselves still measure: the counters are the ledger's, and `synchronize()`
delivers.
"""

from __future__ import annotations

from typing import Any

from skimp.cuda import amp
from skimp.errors import OutOfMemoryError
from skimp.memory.ledger import settle
from skimp.memory.limits import set_per_process_memory_fraction
from skimp.memory.stats import empty_cache as _empty_cache
from skimp.memory.stats import (
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)

__all__ = [
    "OutOfMemoryError",
    "amp",
    "current_device",
    "device_count",
    "empty_cache",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "synchronize",
]

memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
reset_max_memory_allocated = reset_peak_memory_stats


def is_available() -> bool:
    """Whether tensors can live on a CUDA device: never in this version."""
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    """Number of CUDA devices."""
    return 0


def current_device() -> int:
    """PyTorch's error: there is no current device."""
    from skimp.backend import missing
    from skimp.devices import device

    missing.refuse(device("cuda"))


def synchronize(device: Any = None) -> None:
    """Wait for all work: every promise delivers."""
    settle()


def empty_cache() -> None:
    """Give cached blocks back to the operating system (`skimp.memory.empty_cache` says how many
    bytes).
    """
    _empty_cache()


def manual_seed(seed: int) -> None:
    """Nothing to seed without CUDA; the number is checked."""
    int(seed)


manual_seed_all = manual_seed
