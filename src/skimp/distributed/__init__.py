"""torch.distributed: not available, as in a PyTorch that was built without it."""

from __future__ import annotations

import enum
import os

from skimp._compat.modules import lookup, public
from skimp.distributed.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)

__all__ = [
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "QueueEmptyError",
    "ReduceOp",
    "get_node_local_rank",
    "group",
]
__all__.extend(public(__name__))
__getattr__ = lookup(__name__)


class ReduceOp(enum.Enum):
    """How values would be combined."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class group:  # noqa: N801  (PyTorch's name)
    """The group of all processes: there is none."""

    WORLD = None


class DebugLevel(enum.Enum):
    """How much is checked and said."""

    OFF, INFO, DETAIL = range(3)


def get_debug_level() -> DebugLevel:
    """How much is checked and said: nothing."""
    return DebugLevel.OFF


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
