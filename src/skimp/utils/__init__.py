"""torch.utils."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING, Any

from skimp._compat.modules import lookup as _lookup
from skimp._engine.tensor.fields import exchange
from skimp._engine.tensor.tensor import Tensor
from skimp.utils import _pickling, _pytree, checkpoint, deterministic, dlpack, hooks

if _TYPE_CHECKING:  # imported when a program names it
    from skimp.utils import data

__all__ = [
    "_pytree", "checkpoint", "data", "deterministic", "dlpack", "hooks", "set_module",
    "swap_tensors",
]  # fmt: skip
_pickling.register_types()
__getattr__ = _lookup(__name__)


def set_module(obj: Any, mod: str) -> None:
    """Let a function or class say that it comes from another module."""
    obj.__module__ = mod


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange all that two tensors are; whoever holds one of them sees the other's values.

    Shape: any two.
    Dtypes: any two.
    Raises: TypeError for classes of other slots.
    Memory: no byte moves: the objects change places.
    """
    exchange(t1, t2)
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
