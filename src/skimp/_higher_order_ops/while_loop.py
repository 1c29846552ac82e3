"""A loop for as long as a function of its state is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["while_loop"]


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> tuple[Any, ...]:
    """The state after `body_fn(*state) -> state` ran for as long as `cond_fn(*state)`."""
    state = tuple(carried_inputs)
    while cond_fn(*state):
        found = body_fn(*state)
        state = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    return state
