"""Sizes that PyTorch's tracers replace by symbols. Nothing is traced here: they are numbers."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable
from typing import Any

__all__ = [
    "SymBool", "SymFloat", "SymInt", "sym_float", "sym_fresh_size", "sym_int", "sym_ite",
    "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum",
]  # fmt: skip


class _Symbol:
    """For `isinstance`: no size is a symbol."""

    def __init__(self, node: Any = None) -> None:
        raise RuntimeError(
            f"{type(self).__name__}: nothing is traced, so there are no symbols; use the number"
        )


class SymInt(_Symbol):
    """For `isinstance`: no size is a symbol."""


class SymFloat(_Symbol):
    """For `isinstance`: no number is a symbol."""


class SymBool(_Symbol):
    """For `isinstance`: no condition is a symbol."""


def _one(a: Any) -> Any:
    """A number, or the number in a tensor of one."""
    if hasattr(a, "numel") and a.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return a


def sym_float(a: Any) -> float:
    """The number as a float."""
    return float(_one(a))


def sym_int(a: Any) -> int:
    """The number cut to an integer."""
    return int(_one(a))


def sym_fresh_size(expr: Any) -> Any:
    """The number itself, or the one in a tensor."""
    return expr.item() if hasattr(expr, "numel") else expr


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """The second argument if the first holds, else the third.

    Raises: AssertionError for a condition that is no bool and for values of two types.
    """
    if not isinstance(b, bool) or type(t) is not type(f):
        raise AssertionError("sym_ite takes a bool and two values of one type")
    return t if b else f


def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float where one of them is."""
    return _as_either(builtins.max(a, b), a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float where one of them is."""
    return _as_either(builtins.min(a, b), a, b)


def _as_either(found: Any, a: Any, b: Any) -> Any:
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_not(a: Any) -> bool:
    """Whether the condition does not hold."""
    return not a


def sym_sqrt(a: Any) -> float:
    """The square root."""
    number: Any = a if isinstance(a, str) else sym_float(a)
    return math.sqrt(number)


def sym_sum(args: Iterable[Any]) -> Any:
    """The sum."""
    return sum(args)
