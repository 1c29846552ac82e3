"""torch.compile and torch.compiler: functions run as they are, since pointwise work is deferred
and fused anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._compat import notices, refusals

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "nested_compile_region",
    "reset",
    "set_default_backend",
    "set_stance",
    "substitute_in_graph",
]
__getattr__ = refusals.names(__name__)


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


def substitute_in_graph(original_fn: Any, **_: Any) -> Callable[[Any], Any]:
    """A decorator that gives the function itself: no graph would take it in another's place."""
    return lambda f: f


def nested_compile_region(fn: Any = None, **_: Any) -> Any:
    """The function itself; without one, a decorator."""
    return (lambda f: f) if fn is None else fn


_backend: Any = "inductor"


def get_default_backend() -> Any:
    """The backend that `compile` would use where none is named."""
    return _backend


def set_default_backend(backend: Any) -> None:
    """Set that backend; it changes nothing else. None means the first one again."""
    global _backend
    _backend = "inductor" if backend is None else backend
