"""`__torch_function__`: classes that take functions over, and modes that take all of them.

A class may define it whether it is a tensor's subclass or not. Subclasses that define nothing
inherit `Tensor.__torch_function__`, which runs the function and gives its results their class.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import MethodType
from typing import Any

from skimp._engine.dispatch import attributes
from skimp._engine.dispatch.row import FORMS, KNOWN, METHODS, NAMESPACES, signature
from skimp._engine.dispatch.transforms import OVERRIDES, TRANSFORMS, Call, active
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.interrupts import insist, region
from skimp._engine.tensor.fields import become
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


disabled.__name__ = "_disabled_torch_function_impl"
_OFF = disabled


def enabled() -> bool:
    """Whether classes may take functions over here."""
    return state.subclasses


class DisableTorchFunctionSubclass:
    """A region in which classes take nothing over; modes still do."""

    def __enter__(self) -> None:
        self._before = state.subclasses
        state.subclasses = False

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        state.subclasses = self._before


class DisableTorchFunction:
    """A region in which nothing is taken over."""

    def __enter__(self) -> None:
        self._before = state.subclasses, state.everything
        state.subclasses = state.everything = False

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        state.subclasses, state.everything = self._before


@region
def modes(left: tuple[Any, ...]) -> Iterator[None]:
    """Inside, these modes are on and no others."""
    before = state.modes
    try:
        state.modes = left
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


# Where PyTorch's functions are Python, which hands over all that has a default, by name.
IN_PYTHON = frozenset(
    {"skimp.functional", "skimp.nn.functional", "torch.functional", "torch.nn.functional"}
)

PLAIN_METHOD = (
    "Defining your `__torch_function__ as a plain method is deprecated and will be an error in "
    "future, please define it as a classmethod."
)

# Functions that give the class that they are asked for, or always plain tensors: only modes see
# them.
OF_MODES = frozenset({"as_subclass", "from_dlpack", "tensor"})


class Overrides:
    """The transform that hands calls over."""

    def concerns(self, call: Call) -> bool:
        if state.modes and state.everything:
            return True
        if not state.subclasses:
            return False
        values = call.values()
        kinds = set(map(type, values))
        if list in kinds or tuple in kinds:
            kinds = set(map(type, _flat(values)))
        for kind in kinds:  # noqa: SIM110  # a generator takes longer
            if kind not in KNOWN and takes_over(kind):
                return True
        return False

    def run(self, call: Call) -> Any:
        if call.form.name in OF_MODES and not (state.modes and state.everything):
            with DisableTorchFunctionSubclass():
                return call.below()
        f = public(call.form.f, call.form.name)
        if getattr(f, "__module__", None) in IN_PYTHON and f is not METHODS.get(call.form.name):
            return hand_over(f, *as_spelled(f, call.args, call.kwargs))
        return hand_over(f, *as_given(call.form.f, call.args, call.kwargs))


def asks(t: Tensor) -> bool:
    """Whether a mode or this tensor's class takes a function over that it is given to now."""
    if state.modes and state.everything:
        return True
    return state.subclasses and type(t) is not Tensor and takes_over(type(t))


def public(f: Function, name: str) -> Function:
    """The function under which users know a form: that of a property is the property's `__get__`,
    that of an operator the function or method of its name.
    """
    found = attributes.own(vars(Tensor).get(name))
    if isinstance(found, property) and found.fget is f:
        return found.__get__
    if found is f or isinstance(f, MethodType):
        return f
    if any([functions.get(name) is f for functions in NAMESPACES.values()]):
        return f
    op = FORMS[f].op if f in FORMS else None
    for functions in (METHODS, *NAMESPACES.values()):
        known = functions.get(name)
        if known is f or (op is not None and known in FORMS and FORMS[known].op is op):
            return known
    return METHODS.get(name) or NAMESPACES[""].get(name) or f


def as_spelled(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without a default, and by their names all that have one."""
    form = signature(f)
    try:
        bound = form.bind(*args, **kwargs)
    except TypeError:
        return as_given(f, args, kwargs)
    bound.apply_defaults()
    if any(p.kind is p.VAR_POSITIONAL for p in form.parameters.values()):
        return bound.args, bound.kwargs
    needed = tuple(
        [bound.arguments.pop(n) for n, p in form.parameters.items() if p.default is p.empty]
    )
    return needed, dict(bound.arguments)


def as_given(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without those that have their defaults, which a wrapper has filled in; behind
    the first that is left out the others go by name.
    """
    bound = isinstance(f, MethodType)  # whose owner is not given
    names = f.__code__.co_varnames[bound : f.__code__.co_argcount]
    defaults = dict(zip(reversed(names), reversed(f.__defaults__ or ()), strict=False))
    words = f.__kwdefaults__ or {}
    kept = {k: v for k, v in kwargs.items() if k not in words or words[k] is not v}
    if len(args) > len(names):  # an open list of them
        return args, kept
    given: list[Any] = []
    for i, (name, value) in enumerate(zip(names, args, strict=False)):
        if name in defaults and defaults[name] is value:
            continue
        if len(given) == i:
            given.append(value)
        else:
            kept[name] = value
    return tuple(given), kept


def hand_over(
    func: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    relevant: Iterable[Any] | None = None,
) -> Any:
    """The result of whoever takes the function over: the innermost mode, then the classes of the
    `relevant` arguments (by default all).

    Raises TypeError where none of them wants it.
    """
    if relevant is None:
        relevant = (*args, *kwargs.values())
    found = overloaded(relevant) if state.subclasses else []
    types = tuple([type(value) for value in found])
    if state.modes and state.everything:
        mode = state.modes[-1]
        with modes(state.modes[:-1]):
            return mode.__torch_function__(func, types, args, kwargs)
    for value in found:
        handler = value.__torch_function__
        if getattr(handler, "__self__", None) is value:
            warnings.warn(PLAIN_METHOD, DeprecationWarning, stacklevel=2)
        result = handler(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if not found:
        return func(*args, **kwargs)
    raise TypeError(
        f"Multiple dispatch failed for '{title(func)}'; all __torch_function__ handlers returned "
        "NotImplemented:\n\n"
        + "".join([f"  - tensor subclass {t}\n" for t in types])
        + "\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


def title(func: Any) -> str:
    """The public name of a function: `torch.linalg.norm`."""
    for space, functions in NAMESPACES.items():
        for name, f in functions.items():
            if f is func:
                return f"torch.{space}.{name}" if space else f"torch.{name}"
    owner = getattr(func, "__self__", None)
    for name, found in vars(Tensor).items():
        f = attributes.own(found)
        if f is func or (isinstance(f, property) and f is owner):
            suffix = f".{func.__name__}" if f is owner else ""
            return f"torch.Tensor.{name}{suffix}"
    module = getattr(func, "__module__", "")
    return f"{module}.{getattr(func, '__name__', func)}"


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
    kwargs = kwargs or {}
    with DisableTorchFunctionSubclass():
        return converted(func(*args, **kwargs), cls, (*args, *kwargs.values()))


def converted(result: Any, cls: type, given: tuple[Any, ...] = ()) -> Any:
    """A result whose plain tensors are of this class, on the same bytes and history. What was
    `given` stays what it is.
    """
    if cls is Tensor or cls in KNOWN:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls) and not result._hollow:
        if any([value is result for value in given]):
            return result.as_subclass(cls)
        return become(result, cls)  # the tensor itself
    if isinstance(result, (tuple, list)):
        parts = [converted(r, cls, given) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _hand_over(self: Tensor, func: Function, *args: Any, **kwargs: Any) -> Any:
    """The function's result by this tensor's class."""
    return hand_over(func, args, kwargs, (self,))


def _begin_class(cls: type[Tensor]) -> None:
    f = cls.__torch_function__
    if getattr(f, "__func__", f) not in (_torch_function, _OFF):
        attributes.watch_class(cls)


# for what stands below dispatch
for _name, _value in (
    ("__torch_function__", classmethod(_torch_function)),
    ("_skimp_asks", asks),
    ("_skimp_hand_over", _hand_over),
    ("_skimp_begin_class", classmethod(_begin_class)),
):
    setattr(Tensor, _name, _value)
attributes.watch_by(asks, hand_over)


@enters_uninterrupted
def _watch_no_longer() -> None:
    """Have nobody asked about attributes, unless a mode is on."""
    if "mode" not in active:
        insist(attributes.watch_none)


class TorchFunctionMode:
    """A region in which every function is handed to `__torch_function__` of an instance."""

    def __torch_function__(
        self, func: Function, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        try:
            attributes.watch_all()
            state.modes = (*state.modes, self)
            active[:0] = ("mode",)  # one step with the line above
            return self
        except BaseException:
            _watch_no_longer()
            raise

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        try:
            state.modes = state.modes[:-1]
            active.remove("mode")
        finally:
            _watch_no_longer()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """Deprecated: `with Mode():` is the same."""
        return cls(*args, **kwargs)
