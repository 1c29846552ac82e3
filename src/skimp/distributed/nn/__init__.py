"""torch.distributed.nn: communication with gradients. There is no group, so each refuses."""

from skimp.distributed.nn import functional
from skimp.distributed.nn.functional import (
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
    "functional",
    "gather",
    "group",
    "reduce",
    "reduce_scatter",
    "scatter",
]
