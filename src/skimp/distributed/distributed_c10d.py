"""torch.distributed's functions and classes under their home's name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from skimp._engine.memory.call_site import warn
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.barriers import barrier, monitored_barrier
from skimp.distributed.collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_single,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    scatter,
)
from skimp.distributed.groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    _get_default_group,
    _get_default_store,
    _get_process_group_name,
    _rank_not_in_group,
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    is_initialized,
    supports_complex,
)
from skimp.distributed.joining import destroy_process_group, init_process_group
from skimp.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from skimp.distributed.p2p import P2POp, batch_isend_irecv, irecv, isend, recv, send
from skimp.distributed.reduce_ops import ReduceOp, _make_nccl_premul_sum, reduce_op
from skimp.distributed.reductions import (
    all_reduce,
    all_reduce_coalesced,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
)
from skimp.distributed.stores import PrefixStore, Store
from skimp.distributed.subgroups import new_group, new_subgroups, new_subgroups_by_enumeration
from skimp.distributed.work import Work

__all__ = [
    "Backend", "GroupMember", "P2POp", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "Work",
    "_CoalescingManager", "_coalescing_manager", "_get_default_group", "_get_default_store",
    "_get_global_rank", "_get_process_group_name",
    "_make_nccl_premul_sum", "_rank_not_in_group", "all_gather",
    "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
    "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
    "gather_object", "get_backend", "get_backend_config", "get_default_backend_for_device",
    "get_global_rank", "get_group_rank", "get_pg_count", "get_process_group_ranks", "get_rank",
    "get_world_size", "group", "init_process_group", "irecv", "is_initialized", "isend",
    "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "recv",
    "recv_object_list", "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
    "supports_complex",
]  # fmt: skip


_get_global_rank = get_global_rank  # PyTorch's older name


class _CoalescingManager:
    """What a region of collectives gives: each is done when its call returns."""

    def wait(self) -> None:
        """Nothing is left to wait for."""


@contextlib.contextmanager
def _coalescing_manager(
    group: Any = None, device: Any = None, async_ops: bool | None = False
) -> Iterator[_CoalescingManager]:  # PyTorch's name
    """A region in which PyTorch sends small collectives together; here each goes at once."""
    yield _CoalescingManager()


def _deprecated(name: str, instead: str) -> None:
    warn(
        f"`torch.distributed.{name}` is deprecated. Please use `torch.distributed.{instead}` "
        "instead.",
        FutureWarning,
    )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_gather_single` under its older name.

    Shape: as all_gather_single's.
    Dtypes: alike on all ranks.
    Raises: as all_gather_single.
    Memory: written in place.
    """
    _deprecated("all_gather_into_tensor", "all_gather_single")
    return all_gather_single(output_tensor, input_tensor, group, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`reduce_scatter_single` under its older name.

    Shape: as reduce_scatter_single's.
    Dtypes: alike on all ranks.
    Raises: as reduce_scatter_single.
    Memory: written in place.
    """
    _deprecated("reduce_scatter_tensor", "reduce_scatter_single")
    return reduce_scatter_single(output, input, op, group, async_op)
