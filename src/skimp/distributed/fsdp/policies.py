"""The settings of fully_shard and FullyShardedDataParallel, by PyTorch's names."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of gathered parameters, of gradients while they are averaged, and of the output."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class MixedPrecision:
    """The same for FullyShardedDataParallel."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True

    def policy(self) -> MixedPrecisionPolicy:
        """In fully_shard's words."""
        return MixedPrecisionPolicy(self.param_dtype, self.reduce_dtype)


@dataclass
class OffloadPolicy:
    """Nothing is moved elsewhere."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters live on the host, where they are already."""

    pin_memory: bool = True


@dataclass
class CPUOffload:
    """The same for FullyShardedDataParallel."""

    offload_params: bool = False


class ShardingStrategy(enum.Enum):
    """What ranks hold once: those of a host, where it is hybrid, or of a mesh's last dim."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = range(1, 6)


class BackwardPrefetch(enum.Enum):
    """When the next module's parameters are asked for in backward."""

    BACKWARD_PRE, BACKWARD_POST = 1, 2


class StateDictType(enum.Enum):
    """What `state_dict` gives: all of each tensor, or this rank's part."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = 1, 2, 3


@dataclass
class StateDictConfig:
    """How."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """All of each tensor, on rank 0 only if asked."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """This rank's parts."""


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """This rank's parts."""


@dataclass
class OptimStateDictConfig:
    """How an optimizer's state is given."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """All of it."""

    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """This rank's parts."""
