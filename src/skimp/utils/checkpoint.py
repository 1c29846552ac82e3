"""torch.utils.checkpoint: recomputation in place of keeping."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterable
from typing import Any

from skimp._compat.modules import lookup as _lookup
from skimp._engine.tensor.tensor import Tensor
from skimp.autograd.checkpoint import (
    CheckpointError,
    CheckpointFunction,
    checkpoint,
    checkpoint_sequential,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

__all__ = [
    "CheckpointError", "CheckpointFunction", "checkpoint", "checkpoint_sequential",
    "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]  # fmt: skip
__getattr__ = _lookup(__name__)


class CheckpointPolicy(enum.Enum):
    """What selective checkpointing would do with an op's result."""

    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE = range(4)
    MUST_CPU_OFFLOAD, PREFER_CPU_OFFLOAD = 4, 5


class DefaultDeviceType:
    """The type of device whose random state is kept where the arguments name none."""

    _type = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set it; there is one random state here, which is always kept."""
        DefaultDeviceType._type = device

    @staticmethod
    def get_device_type() -> str:
        """The type that was set."""
        return DefaultDeviceType._type


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, tensors among them detached and requiring grad where they did.

    Raises: RuntimeError for what is no tuple.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        [t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in inputs]
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no tensor among the arguments requires grad."""
    if not any([t.requires_grad for t in inputs if isinstance(t, Tensor)]):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The devices of tensors that are not on the CPU, and their random states: there are none.

    Shape: two empty lists.
    Dtypes: none.
    Raises: nothing.
    Memory: none.
    """
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """There are no states to set."""
