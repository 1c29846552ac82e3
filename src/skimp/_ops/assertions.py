"""What programs assert with torch's own words: `_assert`, and `_check` and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.tensor.tensor import Tensor

__all__ = ["_assert", "_assert_async", "_check", "_check_index", "_check_type", "_check_value"]


def _assert(condition: Any, message: str) -> None:
    """Python's assert, as a function."""
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Any, assert_msg: str | None = None) -> None:
    """The only element is not zero."""
    if not input:
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _checking(error: type[Exception]) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], Any] | None = None) -> None:
        if isinstance(cond, Tensor):
            raise TypeError("cond must be a bool, but got a Tensor; use cond.all().item()")
        if not isinstance(cond, bool):
            raise TypeError(f"cond must be a bool, but got {type(cond)}")
        if cond:
            return
        if message is None:
            raise error(
                f"Expected cond to be True, but got {cond}. (Could this error message be improved? "
                "If so, please report an enhancement request to PyTorch.)"
            )
        if not callable(message):
            raise TypeError("message must be a callable")
        raise error(str(message()))

    check.__doc__ = f"The condition holds, or {error.__name__} is raised with what `message` makes."
    return check


_check = _checking(RuntimeError)
_check_index = _checking(IndexError)
_check_value = _checking(ValueError)
_check_type = _checking(TypeError)
