"""Memory, counted: what tensors hold now and held at most, limits, regions, copies.

The counters have PyTorch's names (torch.cuda) and count the host. Reading one materializes all that
is deferred first, but for what there is no room for within a limit or a budget.
"""

import importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any

from skimp._engine.budget.setting import budget, get_budget, set_budget
from skimp._engine.memory.copies import no_copies
from skimp._engine.memory.ledger import materialize_pending as synchronize
from skimp._engine.memory.limits import get_limit, set_limit, set_per_process_memory_fraction
from skimp._engine.memory.regions import Region, region
from skimp._engine.memory.sizes import parse_size
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
from skimp._engine.memory.steps import step
from skimp.errors import OutOfMemoryError
from skimp.memory.holders import aliases, holders

if _TYPE_CHECKING:
    from skimp.memory.drawing.picture import Picture, picture
    from skimp.memory.graph import saved

__all__ = [
    "OutOfMemoryError", "Picture", "Region", "aliases", "budget", "empty_cache", "get_budget",
    "get_limit", "holders", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_reserved", "memory_stats", "memory_summary", "no_copies",
    "parse_size", "picture", "region", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
    "saved", "set_budget", "set_limit", "set_per_process_memory_fraction", "step", "synchronize",
]  # fmt: skip

# What is imported when it is asked for: the lens, which stands above this module, and what few
# programs ask.
_LATE = {
    **{name: ("skimp.memory.drawing.picture", name) for name in ("Picture", "picture")},
    "saved": ("skimp.memory.graph", "saved"),
    "record": ("skimp.lens.recording", "Recording"),
    **{
        name: ("skimp.lens.history", name)
        for name in ("_dump_snapshot", "_record_memory_history", "_snapshot")
    },
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATE[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*__all__, "record"])
