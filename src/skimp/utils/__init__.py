"""torch.utils."""

from __future__ import annotations

import importlib
from typing import Any

from skimp._compat import refusals as _refusals
from skimp._engine.tensor.tensor import Tensor
from skimp.utils import _pytree, checkpoint, data, deterministic, dlpack, hooks

__all__ = [
    "_pytree",
    "checkpoint",
    "data",
    "deterministic",
    "dlpack",
    "hooks",
    "set_module",
    "swap_tensors",
]
_LATER = frozenset(
    {
        "benchmark", "bottleneck", "collect_env", "cpp_extension", "mobile_optimizer", "model_zoo",
        "tensorboard",
    }
)  # fmt: skip


def set_module(obj: Any, mod: str) -> None:
    """Let a function or class say that it comes from another module."""
    obj.__module__ = mod


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange all that two tensors are; whoever holds one of them sees the other's values."""
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__


_left_out: Any = _refusals.names(__name__)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"skimp.utils.{name}")
    return _left_out(name)
