"""torch.nn.functional: the functions that op rows declare for this namespace."""

from __future__ import annotations

from typing import Any

from skimp._compat import refusals as _refusals
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor as Tensor

globals().update(NAMESPACES.get("nn.functional", {}))
__getattr__ = _refusals.names(__name__)


def assert_int_or_pair(arg: list[int], arg_name: str, message: str) -> None:
    """Refuse what is neither an int nor has two elements."""
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


def has_torch_function(relevant_args: Any) -> bool:
    """Whether an argument would take the function over: never."""
    return False


def has_torch_function_unary(arg: Any) -> bool:
    """Whether the argument would take the function over: never."""
    return False


def has_torch_function_variadic(*args: Any) -> bool:
    """Whether an argument would take the function over: never."""
    return False


handle_torch_function = _refusals.refusal(
    "skimp.overrides", "handle_torch_function", "skimp hands no functions to other types"
)
