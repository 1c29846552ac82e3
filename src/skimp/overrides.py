"""torch.overrides: functions are not handed to other types; tensors are skimp's own."""

from __future__ import annotations

from typing import Any

from skimp._compat import refusals
from skimp._engine.tensor.tensor import Tensor

_NAMES = (
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "redispatch_function",
    "wrap_torch_function",
)
__all__ = [
    "get_ignored_functions",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
]
__all__.extend(_NAMES)
__getattr__ = refusals.names(
    __name__, _NAMES, "skimp hands no functions to other types (no __torch_function__)"
)


def has_torch_function(relevant_args: Any) -> bool:
    """Whether an argument would take the function over: never."""
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or its type has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def get_ignored_functions() -> set[Any]:
    """Functions that can't be taken over: none are named, for none can."""
    return set()


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a tensor's method."""
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


def resolve_name(f: Any) -> str | None:
    """The name under which a function is reached."""
    if is_tensor_method_or_property(f):
        return f"torch.Tensor.{f.__name__}"
    name = getattr(f, "__name__", None)
    return None if name is None else f"torch.{name}"
