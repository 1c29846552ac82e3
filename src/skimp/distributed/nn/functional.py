"""The functions of torch.distributed.nn under their second name."""

from skimp.distributed import (
    ReduceOp,
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    group,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "group",
    "reduce",
    "reduce_scatter",
    "scatter",
]
