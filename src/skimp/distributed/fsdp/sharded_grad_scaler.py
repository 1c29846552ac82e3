"""A GradScaler for parameters that are spread over ranks: all skip a step, or none does."""

from __future__ import annotations

from typing import Any

from skimp._ops.create.creation import tensor
from skimp.amp.grad_scaler import GradScaler
from skimp.distributed.reduce_ops import ReduceOp
from skimp.distributed.reductions import all_reduce


class ShardedGradScaler(GradScaler):
    """`amp.GradScaler` that skips a step where any rank's gradients have an inf or NaN."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
        self.process_group = process_group

    def _skimp_unscale(self, optimizer: Any) -> bool:
        found = tensor([int(super()._skimp_unscale(optimizer))])
        all_reduce(found, ReduceOp.MAX, self.process_group)
        return bool(found.item())
