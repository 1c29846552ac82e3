"""torch.compile, and the backend that it would use: functions and modules run as they are."""

from __future__ import annotations

from typing import Any

from skimp._compat import notices
from skimp.nn.modules.compiled import OptimizedModule
from skimp.nn.modules.module import Module

__all__ = ["compile", "disable", "get_default_backend", "set_default_backend"]


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
    """The function itself, or a module around the one that is given (`OptimizedModule`), which
    runs as it is; without one, a decorator.

    Raises: RuntimeError for both a mode and options.
    """
    if model is None:
        return lambda f: compile(f, disable=disable)
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if not callable(model):
        raise TypeError(f"torch.compile takes a function or a module, not {type(model).__name__}")
    if disable:
        return model
    notices.once(
        "torch.compile returns the function as it is: pointwise work is deferred and fused "
        "without it"
    )
    return _around(model)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself, or a module around the one that is given; without one, a decorator."""
    return disable if fn is None else _around(fn)


def _around(thing: Any) -> Any:
    if isinstance(thing, Module) and not isinstance(thing, OptimizedModule):
        return OptimizedModule(thing)
    return thing


_backend: Any = "inductor"


def get_default_backend() -> Any:
    """The backend that `compile` would use where none is named."""
    return _backend


def set_default_backend(backend: Any) -> None:
    """Set that backend; it changes nothing else. None means the first one again."""
    global _backend
    _backend = "inductor" if backend is None else backend
