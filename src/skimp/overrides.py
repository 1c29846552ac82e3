"""torch.overrides: functions handed to other types by their `__torch_function__`."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from skimp._compat.modules import lookup as _lookup
from skimp._engine.dispatch import overrides as engine
from skimp._engine.dispatch.overrides import TorchFunctionMode
from skimp._engine.dispatch.row import FORMS, NAMESPACES
from skimp._engine.dispatch.unbound import unbound
from skimp._engine.tensor.tensor import Tensor

__all__ = [
    "TorchFunctionMode", "get_ignored_functions", "get_overridable_functions",
    "get_testing_overrides", "handle_torch_function", "has_torch_function", "is_tensor_like",
    "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip
__getattr__ = _lookup(__name__)


@unbound
def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument, or a mode that is on, would take a function over."""
    if engine.state.modes and engine.state.everything:
        return True
    return engine.state.subclasses and any([engine.takes_over(type(a)) for a in relevant_args])


@unbound
def has_torch_function_unary(arg: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((arg,))


@unbound
def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of the arguments."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Call `public_api(*args, **kwargs)` by the `__torch_function__` of one of `relevant_args`.

    Raises TypeError where each of them returns NotImplemented.
    """
    return engine.hand_over(public_api, args, kwargs, relevant_args)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """A decorator: the function can be taken over by what `dispatcher(*args, **kwargs)` names."""

    def wrapped(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(run, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return run

    return wrapped


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or its type has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that can be taken over, by the namespace or class that holds them."""
    found: dict[Any, list[Callable[..., Any]]] = {}
    for space, functions in NAMESPACES.items():
        module = importlib.import_module(f"skimp.{space}".rstrip("."))
        found[module] = [f for f in functions.values() if f in FORMS]
    found[Tensor] = [f for f in vars(Tensor).values() if inspect.isfunction(f) and f in FORMS]
    return found


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each such function one of the same signature that does nothing."""
    return {f: _dummy(f) for functions in get_overridable_functions().values() for f in functions}


def _dummy(f: Callable[..., Any]) -> Callable[..., Any]:
    def nothing(*args: Any, **kwargs: Any) -> int:
        return -1

    nothing.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]
    return nothing


def get_ignored_functions() -> set[Any]:
    """Functions that can't be taken over: those that make tensors of no tensor."""
    names = (
        "arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "tensor", "zeros",
    )  # fmt: skip
    return {NAMESPACES[""][name] for name in names}


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a tensor's method, or the `__get__` of its property."""
    owner = getattr(func, "__self__", None)
    if isinstance(owner, property):
        return owner in vars(Tensor).values()
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


def resolve_name(f: Any) -> str | None:
    """The name under which a function is reached."""
    return engine.title(f) if callable(f) else None
