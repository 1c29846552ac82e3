"""`__torch_function__`: classes that take functions over, and modes that take all of them.

A class may define it whether it is a tensor's subclass or not. Subclasses that define nothing
inherit `Tensor.__torch_function__`, which runs the function and gives its results their class.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from skimp._engine.dispatch.row import KNOWN
from skimp._engine.dispatch.transforms import OVERRIDES, TRANSFORMS, Call, active
from skimp._engine.tensor.tensor import Tensor

Function = Callable[..., Any]


class _State(threading.local):
    """What a thread has switched off, and the modes that it is in, outermost first."""

    def __init__(self) -> None:
        self.subclasses = True
        self.everything = True
        self.modes: tuple[Any, ...] = ()


state = _State()


def disabled(cls: Any, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """`__torch_function__` of classes that take nothing over: the function as it is."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


_OFF = disabled


class DisableTorchFunctionSubclass:
    """A region in which classes take nothing over; modes still do."""

    def __enter__(self) -> None:
        self._before = state.subclasses
        state.subclasses = False

    def __exit__(self, *_: object) -> None:
        state.subclasses = self._before


class DisableTorchFunction:
    """A region in which nothing is taken over."""

    def __enter__(self) -> None:
        self._before = state.subclasses, state.everything
        state.subclasses = state.everything = False

    def __exit__(self, *_: object) -> None:
        state.subclasses, state.everything = self._before


@contextlib.contextmanager
def modes(left: tuple[Any, ...]) -> Iterator[None]:
    """Inside, these modes are on and no others."""
    before = state.modes
    state.modes = left
    try:
        yield
    finally:
        state.modes = before


# -- which arguments ------------------------------------------------------------------------------


def takes_over(cls: type) -> bool:
    """Whether the class defines `__torch_function__`, or inherits one that is not switched off."""
    if cls in KNOWN:
        return False
    f = getattr(cls, "__torch_function__", None)
    if f is None or getattr(f, "__func__", f) is _OFF:
        return False
    return not _is_pytorchs(cls)


def _is_pytorchs(cls: type) -> bool:
    """Whether it is PyTorch's own tensor, beside skimp in one process: its `__torch_function__` is
    for PyTorch's functions.
    """
    theirs = getattr(sys.modules.get("torch"), "Tensor", Tensor)
    return theirs is not Tensor and issubclass(cls, theirs)


def overloaded(values: Iterable[Any]) -> list[Any]:
    """One argument for each class that takes over, a subclass before its parents, else from left
    to right.
    """
    found: list[Any] = []
    for value in _flat(values):
        cls = type(value)
        if not takes_over(cls) or any([type(other) is cls for other in found]):
            continue
        place = next(
            (i for i, other in enumerate(found) if issubclass(cls, type(other))), len(found)
        )
        found.insert(place, value)
    return found


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for v in values:
        if type(v) in (list, tuple):
            yield from v
        else:
            yield v


# -- the transform --------------------------------------------------------------------------------


class Overrides:
    """The transform that hands calls over."""

    def concerns(self, call: Call) -> bool:
        if state.modes and state.everything:
            return True
        return state.subclasses and any([takes_over(type(v)) for v in _flat(call.values())])

    def run(self, call: Call) -> Any:
        return hand_over(call.form.f, call.args, call.kwargs)


def hand_over(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of whoever takes the function over: the innermost mode, then arguments' classes.

    Raises TypeError where none of them wants it.
    """
    found = overloaded((*args, *kwargs.values())) if state.subclasses else []
    types = tuple([type(value) for value in found])
    if state.modes and state.everything:
        mode = state.modes[-1]
        with modes(state.modes[:-1]):
            return mode.__torch_function__(func, types, args, kwargs)
    for value in found:
        result = type(value).__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{getattr(func, '__module__', '')}.{getattr(func, '__name__', func)}"
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: "
        f"{list(types)}"
    )


TRANSFORMS[OVERRIDES] = Overrides()


# -- subclasses of Tensor -------------------------------------------------------------------------


def _torch_function(
    cls: Any, func: Function, types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """Run the function and give its tensors this class; leave it to other classes that are no
    parents of this one.
    """
    if not all([issubclass(cls, t) for t in types]):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        return converted(func(*args, **(kwargs or {})), cls)


def converted(result: Any, cls: type) -> Any:
    """A result whose plain tensors are of this class, on the same bytes and history."""
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return given_class(result, cls)
    if isinstance(result, (tuple, list)):
        parts = [converted(r, cls) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def given_class(t: Tensor, cls: type) -> Tensor:
    """The tensor itself as one of a subclass: no fast path takes it any more."""
    t.layout_of()
    t._np = None
    t.__class__ = cls
    return t


setattr(Tensor, "__torch_function__", classmethod(_torch_function))  # noqa: B010  (the stub)


class TorchFunctionMode:
    """A region in which every function is handed to `__torch_function__` of an instance."""

    def __torch_function__(
        self, func: Function, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        state.modes = (*state.modes, self)
        active.append("mode")
        return self

    def __exit__(self, *_: object) -> None:
        state.modes = state.modes[:-1]
        active.remove("mode")

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """Deprecated: `with Mode():` is the same."""
        return cls(*args, **kwargs)
