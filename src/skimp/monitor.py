"""torch.monitor: refused."""

from __future__ import annotations

from skimp._compat.refusals import names

_NAMES = (
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
)
__all__ = list(_NAMES)
__getattr__ = names(
    __name__, _NAMES, "skimp sends no events; skimp.memory and torch.profiler have counters to read"
)
