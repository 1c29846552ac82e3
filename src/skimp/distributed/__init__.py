"""torch.distributed: many processes, on MPI (docs/notes/distributed.md). Without mpi4py there are
stores and names, and `is_available()` is False.
"""

from __future__ import annotations

import os

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp.distributed.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)
from skimp.distributed.mpi import available as _available
from skimp.distributed.reduce_ops import ReduceOp

__all__ = [
    "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError",
    "ReduceOp", "get_node_local_rank", "is_available", "is_backend_available", "is_gloo_available",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available",
    "is_xccl_available",
]  # fmt: skip
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


def is_available() -> bool:
    """Whether groups can be made: mpi4py is installed."""
    return _available()


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return _available()


def is_gloo_available() -> bool:
    """As `is_mpi_available`: the name means MPI here."""
    return _available()


def is_nccl_available() -> bool:
    """False: there are no GPUs. As a backend's name it means MPI all the same."""
    return False


def is_ucc_available() -> bool:
    """False, as PyTorch's wheels say."""
    return False


def is_xccl_available() -> bool:
    """False: there are no such devices."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether a backend, or each of several ("cpu:gloo,cuda:nccl"), is there."""
    names = [part.rpartition(":")[2] for part in backend.lower().split(",")]
    return all([name in ("mpi", "gloo") for name in names]) and _available()


def is_torchelastic_launched() -> bool:
    """Whether torchrun, or `skimp torchrun`, has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number that a launcher gave this process on its host, or else `fallback_rank`.

    Raises: RuntimeError where no launcher gave one and there is no `fallback_rank`.
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, assuming you are not running in a multi-device context and "
        "want the code to run locally instead."
    )
