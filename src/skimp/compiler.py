"""torch.compile and torch.compiler: functions run as they are, since pointwise work is deferred
and fused anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp import notices

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
]


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """The function or module itself; without one, a decorator."""
    if model is None:
        return lambda f: compile(f, disable=disable)
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if not callable(model):
        raise TypeError(f"torch.compile takes a function or a module, not {type(model).__name__}")
    if not disable:
        notices.once(
            "torch.compile returns the function as it is: pointwise work is deferred and fused "
            "without it"
        )
    return model


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself; without one, a decorator."""
    return (lambda f: f) if fn is None else fn


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return fn


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return fn


def set_stance(stance: str = "default", **_: Any) -> Any:
    """Accepted: a context, and a decorator that gives the function itself."""
    return _Stance()


class _Stance:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, fn: Any) -> Any:
        return fn


def is_compiling() -> bool:
    """Nothing is ever compiled."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """There is nothing to forget."""


def cudagraph_mark_step_begin() -> None:
    """There are no graphs to mark."""


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """There are none."""
    return []
