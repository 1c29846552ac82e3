"""torch.distributed.algorithms.ddp_comm_hooks: smaller gradients before they are sent."""

from __future__ import annotations

import enum
from typing import Any

from skimp.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from skimp.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class DDPCommHookType(enum.Enum):
    """The hooks by name."""

    ALLREDUCE = "allreduce_hook"
    FP16_COMPRESS = "fp16_compress_hook"
    BF16_COMPRESS = "bf16_compress_hook"
    POWER_SGD = "powerSGD_hook"
    BATCHED_POWER_SGD = "batched_powerSGD_hook"

    def hook(self) -> Any:
        """The function."""
        for module in (default_hooks, powerSGD_hook):
            if hasattr(module, self.value):
                return getattr(module, self.value)
        raise AssertionError(self.value)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """`model.register_comm_hook` by a hook's name; PowerSGD's get a state of rank 1 if none."""
    if "POWER" in comm_hook_type.name and state is None:
        state = PowerSGDState(None)
    model.register_comm_hook(state, comm_hook_type.hook())
