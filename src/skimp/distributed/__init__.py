"""torch.distributed: not available, as in a PyTorch that was built without it."""

from __future__ import annotations

import enum
import os
from typing import Any, NoReturn

from skimp._compat import refusals

_NAMES = (
    "Backend",
    "DeviceMesh",
    "FileStore",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "Store",
    "TCPStore",
    "Work",
    "destroy_process_group",
    "init_device_mesh",
    "init_process_group",
    "new_group",
    "new_subgroups",
)
_COMMUNICATE = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)
__all__ = [
    "ReduceOp",
    "group",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
]
__all__.extend(_NAMES)
__all__.extend(_COMMUNICATE)
__getattr__ = refusals.names(
    __name__,
    _NAMES,
    "skimp joins no processes to groups (torch.distributed.is_available() is False); run one "
    "process, or torch.multiprocessing for workers",
)


class ReduceOp(enum.Enum):
    """How values would be combined."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class group:  # noqa: N801  (PyTorch's name)
    """The group of all processes: there is none."""

    WORLD = None


def is_available() -> bool:
    """Whether processes can be joined to a group: never in this version."""
    return False


def is_initialized() -> bool:
    """Whether this process is part of a group."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether there is such a way to communicate: there is none."""
    return False


def is_gloo_available() -> bool:
    """Whether Gloo is there."""
    return False


is_nccl_available = is_mpi_available = is_gloo_available


def _without_a_group(*_: Any, **__: Any) -> NoReturn:
    """Refused, with PyTorch's error where no group was made: none can be here."""
    raise ValueError(
        "Default process group has not been initialized, please make sure to call "
        "init_process_group. (skimp joins no processes to groups)"
    )


globals().update(dict.fromkeys(_COMMUNICATE, _without_a_group))


class DistError(RuntimeError):
    """For `except`: an error between processes."""


class DistBackendError(DistError):
    """For `except`: an error of a way to communicate."""


class DistNetworkError(DistError):
    """For `except`: an error of the network."""


class DistStoreError(DistError):
    """For `except`: an error of the processes' common store."""


class QueueEmptyError(DistStoreError):
    """For `except`: a queue in the store has nothing."""


class DebugLevel(enum.Enum):
    """How much is checked and said."""

    OFF, INFO, DETAIL = range(3)


def get_debug_level() -> DebugLevel:
    """How much is checked and said: nothing."""
    return DebugLevel.OFF


is_ucc_available = is_xccl_available = is_gloo_available


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number that a launcher gave this process on its host, or else `fallback_rank`."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, assuming you are not running in a multi-device context and "
        "want the code to run locally instead."
    )
