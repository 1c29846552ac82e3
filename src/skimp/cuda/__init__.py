"""torch.cuda on a machine without CUDA: not available, and its memory counters count the host.

Scripts that measure themselves still measure: the counters are the ledger's, and `synchronize()`
materializes.
"""

from __future__ import annotations

from typing import Any

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp._engine.memory.ledger import materialize_pending
from skimp._engine.memory.stats import empty_cache as _empty_cache
from skimp.cuda import amp, memory, streams
from skimp.cuda.devices import (
    StreamContext,
    device,
    device_of,
    get_arch_list,
    get_gencode_flags,
    get_rng_state_all,
    ipc_collect,
    is_bf16_supported,
    is_current_stream_capturing,
    is_tf32_supported,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
    stream,
)
from skimp.cuda.memory import (
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from skimp.cuda.streams import Event, ExternalStream, Stream
from skimp.errors import OutOfMemoryError

__all__ = [
    "Event", "ExternalStream", "OutOfMemoryError", "Stream", "StreamContext", "amp",
    "current_stream", "default_generators", "device", "device_count", "device_of", "empty_cache",
    "get_arch_list", "get_gencode_flags", "get_rng_state_all", "ipc_collect", "is_available",
    "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "is_tf32_supported",
    "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_cached",
    "max_memory_reserved", "mem_get_info", "memory", "memory_allocated", "memory_cached",
    "memory_reserved", "memory_stats", "memory_summary", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "seed",
    "seed_all", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all",
    "set_stream", "stream", "streams", "synchronize",
]  # fmt: skip
__all__.extend(_public(__name__))
default_generators: tuple[Any, ...] = ()
_stream = Stream()
__getattr__ = _lookup(__name__)


def current_stream(device: Any = None) -> Stream:
    """The one queue of work, the host's."""
    return _stream


def set_stream(stream: Any) -> None:
    """Accepted: there is one queue of work."""


def is_available() -> bool:
    """Whether tensors can live on a CUDA device: never in this version."""
    return False


def is_initialized() -> bool:
    """Whether CUDA has been set up: never in this version."""
    return False


def device_count() -> int:
    """Number of CUDA devices."""
    return 0


def synchronize(device: Any = None) -> None:
    """Wait for all work: every deferred storage materializes."""
    materialize_pending()


def empty_cache() -> None:
    """Give cached blocks back to the operating system (`skimp.memory.empty_cache` says how many
    bytes).
    """
    _empty_cache()


class CudaError(RuntimeError):
    """For `except`: an error of the CUDA runtime."""


class DeferredCudaCallError(Exception):
    """For `except`: an error of what was put off until CUDA is there."""


has_half, has_magma = True, False
