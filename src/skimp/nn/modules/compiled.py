"""torch.compile: functions and modules run as they are. What it makes of a module is another around
it, whose state has its names below `_orig_mod`, as programs expect that save, load and unwrap it.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Final

from skimp._compat import notices
from skimp.nn.modules.module import Module

__all__ = ["OptimizedModule", "compile", "disable"]

WRAPPED: Final = "_orig_mod"


class OptimizedModule(Module):
    """Calls the module that it is given, which runs as it is. Attributes and the training mode are
    that module's; hooks are its own.

    Shape: the module's.
    Raises: TypeError for `len` of a module that has none.
    Memory: nothing beside the module's own tensors.
    """

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._modules[WRAPPED] = mod
        del self.__dict__["training"]  # it is asked for below

    @property
    def _orig_mod(self) -> Module:
        return self.__dict__["_modules"][WRAPPED]  # type: ignore[no-any-return]

    @_orig_mod.setter
    def _orig_mod(self, mod: Module) -> None:
        self.add_module(WRAPPED, mod)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self._orig_mod(*args, **kwargs)

    @property
    def training(self) -> bool:
        """The module's."""
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in self.__dict__ or hasattr(type(self), name)
        object.__setattr__(self, name, value) if own else setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        own = name in self.__dict__ or hasattr(type(self), name)
        object.__delattr__(self, name) if own else delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        if isinstance(self._orig_mod, Sized):
            return len(self._orig_mod)
        raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._orig_mod,)


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
