"""torch.cuda.memory: the counters of torch.cuda."""

from typing import Any

from skimp import memory
from skimp._compat.modules import lookup as _lookup
from skimp._engine.memory.limits import set_per_process_memory_fraction
from skimp._engine.memory.stats import (
    empty_cache,
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
    "empty_cache", "max_memory_allocated", "max_memory_cached", "max_memory_reserved",
    "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats",
    "memory_summary", "reset_accumulated_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_memory_stats", "set_per_process_memory_fraction",
]  # fmt: skip
_HISTORY = ("_dump_snapshot", "_record_memory_history", "_snapshot")
_elsewhere = _lookup(__name__)


def __getattr__(name: str) -> Any:
    return getattr(memory, name) if name in _HISTORY else _elsewhere(name)


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
