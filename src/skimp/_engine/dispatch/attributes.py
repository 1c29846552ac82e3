"""What `__torch_function__` sees of a tensor beside ops: questions, properties, Python's protocols.

`Tensor` itself has none of this, so it costs nothing where nobody asks. A class that defines
`__torch_function__` gets watched attributes in the place of Tensor's when it is made; Tensor gets
them while a `TorchFunctionMode` is on.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from skimp._engine.dispatch.row import FORMS
from skimp._engine.tensor.tensor import Tensor

# Operators that PyTorch hands over under their own names.
_OPERATORS: Final = {
    "__rsub__", "__rtruediv__", "__rdiv__", "__rfloordiv__", "__rmod__", "__rpow__", "__rmatmul__",
    "__rlshift__", "__rrshift__", "__eq__", "__floordiv__", "__pow__", "__and__", "__or__",
    "__xor__", "__lshift__", "__rshift__", "__ipow__", "__iand__", "__ior__", "__ixor__",
    "__ilshift__", "__irshift__",
}  # fmt: skip
# Python's protocols; methods that are no ops.
_OWN: Final = {
    "__invert__", "__setitem__", "__int__", "__float__", "__bool__", "__complex__", "__index__",
    "__len__", "__contains__", "__repr__", "__format__", "__reversed__", "__array__",
    "__dlpack__", "__dlpack_device__", "__deepcopy__", "__reduce_ex__", "backward", "detach",
    "detach_", "requires_grad_", "register_hook", "register_post_accumulate_grad_hook",
    "retain_grad", "cumprod_", "cumsum_", "is_inference",
}  # fmt: skip
# Operators whose functions it hands over.
_OTHERS: Final = {
    "__pos__": "positive", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__ne__": "ne", "__iadd__": "add_", "__isub__": "sub_",
}  # fmt: skip


class WatchedMethod:
    """A method of Tensor that asks first whether somebody takes it over, as `func`.

    Of a class it is Tensor's own, so that no operator of a subclass goes before the left operand's.
    """

    def __init__(self, own: Any, func: Any, is_operator: bool) -> None:
        self.own = own
        self._func = func
        self._hand_over = _as_operator if is_operator else _hand_over

    def __get__(self, t: Tensor | None, owner: Any = None) -> Any:
        if t is None:
            return self.own
        if not _asks(t):
            return self.own.__get__(t, owner)
        return lambda *args, **kwargs: self._hand_over(self._func, (t, *args), kwargs)


def _as_operator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Python asks the other operand where this one can't be used, an ndarray for instance."""
    try:
        return _hand_over(func, args, kwargs)
    except TypeError:
        return NotImplemented


class WatchedProperty:
    """A property of Tensor that asks first whether somebody takes it over."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __get__(self, t: Tensor | None, owner: Any = None) -> Any:
        if t is None:
            return self.own
        return _hand_over(self.own.__get__, (t,), {}) if _asks(t) else self.own.__get__(t, owner)

    def __set__(self, t: Tensor, value: Any) -> None:
        if _asks(t):
            _hand_over(self.own.__set__, (t, value), {})
        else:
            self.own.__set__(t, value)

    def __delete__(self, t: Tensor) -> None:
        if _asks(t):
            _hand_over(self.own.__delete__, (t,), {})
        else:
            self.own.__delete__(t)


def own(attribute: Any) -> Any:
    """Tensor's own attribute, which may be watched now."""
    watched = isinstance(attribute, (WatchedMethod, WatchedProperty))
    return attribute.own if watched else attribute


_asks: Callable[[Tensor], bool]
_hand_over: Callable[..., Any]
_WATCHED: Final[dict[str, Any]] = {}


def watch_by(asks: Callable[[Tensor], bool], hand_over: Callable[..., Any]) -> None:
    """Whom watched attributes ask, and who then calls whoever takes over."""
    global _asks, _hand_over
    _asks, _hand_over = asks, hand_over


def watched() -> dict[str, Any]:
    """The watched attributes by name, made when they are first needed: Tensor is whole then."""
    if not _WATCHED:
        have = {name: own(getattr(Tensor, name)) for name in _names()}
        _WATCHED.update({name: _watched(name, f) for name, f in have.items()})
    return _WATCHED


def _names() -> list[str]:
    properties = [
        name
        for name, f in vars(Tensor).items()
        if isinstance(f, property) and f.fget not in FORMS and not name.startswith("_")
    ]
    methods = [name for name in (*_OPERATORS, *_OWN, *_OTHERS) if name in vars(Tensor)]
    return [*properties, "_version", *methods]


def _watched(name: str, f: Any) -> Any:
    if isinstance(f, property):
        return WatchedProperty(f)
    title = _OTHERS.get(name, name)
    func = own(getattr(Tensor, title))
    if isinstance(func, FunctionType) and func not in FORMS and _is_private(func.__name__):
        func.__name__, func.__qualname__ = title, f"Tensor.{title}"  # handlers go by names
    return WatchedMethod(f, func, name in _OPERATORS or (name in _OTHERS and name != "__pos__"))


def _is_private(name: str) -> bool:
    return name[:1] == "_" != name[1:2]


def watch_class(cls: type[Tensor]) -> None:
    """Have a class's attributes watched where they are Tensor's."""
    for name, attribute in watched().items():
        if getattr(cls, name) is getattr(Tensor, name):
            setattr(cls, name, attribute)


def watch_all() -> None:
    """Have Tensor's own attributes watched, until `watch_none`."""
    Tensor._skimp_watched = True
    for name, attribute in watched().items():
        setattr(Tensor, name, attribute)


def watch_none() -> None:
    """Give Tensor its own attributes back."""
    Tensor._skimp_watched = False
    for name, attribute in watched().items():
        setattr(Tensor, name, attribute.own)
