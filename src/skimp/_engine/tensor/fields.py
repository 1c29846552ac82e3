"""What an instance holds: as a program sees it, only what the program has set there itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

# What every tensor has from the moment it is made, in slots: C fills them by their places
# (`_kernels/loops/instances.h`), and CPython finds them sooner than what the class holds.
GIVEN: Final = ("_storage", "_dtype")
DEFAULTS: Final[dict[str, Any]] = {
    "_np": None, "_skimp_layout": None, "_base": None, "_skimp_node": None, "_grad": None,
    "_skimp_accumulate": None, "_skimp_views": None, "_skimp_creation": None,
    "_rg": False, "_skimp_turned": False, "_skimp_marked": False,
    "_skimp_index": 0, "_skimp_stale": -1,
}  # fmt: skip


class Held:
    """The class that Tensor derives from: it has the slots, and the dictionary of which
    `Tensor.__dict__` is a part.
    """

    __slots__ = (*GIVEN, *DEFAULTS, "__dict__", "__weakref__")
    _skimp_last = "_dtype"  # who has it has all of them

    def __getstate__(self) -> Any:
        """Python's, which would go past `__dict__`, of what a program has set."""
        fields = own(self) or None
        state: Any = object.__getstate__(self)  # with slots: their values beside the dictionary
        others = state[1] if isinstance(state, tuple) else {}
        slots = {k: v for k, v in others.items() if k not in _SLOTS}
        return (fields, slots) if slots else fields


_whole: Any = Held.__dict__["__dict__"]
_SLOTS: Final[dict[str, Any]] = {name: Held.__dict__[name] for name in (*GIVEN, *DEFAULTS)}
# as they are whatever a class of tensors without bytes has in their place
_FILLED: Final = tuple([(_SLOTS[name].__set__, value) for name, value in DEFAULTS.items()])


def fill(t: Any) -> None:
    """Give a new instance what every tensor has, but for `GIVEN`."""
    for put, value in _FILLED:
        put(t, value)


def slot(name: str) -> Any:
    """The descriptor of a slot, for who has another in its place."""
    return _SLOTS[name]


def _slots_of(t: Any) -> dict[str, Any]:
    return {name: s.__get__(t) for name, s in _SLOTS.items() if _is_set(s, t)}


def _is_set(s: Any, t: Any) -> bool:
    try:
        s.__get__(t)
    except AttributeError:
        return False
    return True


def _take(t: Any, held: dict[str, Any], slots: dict[str, Any]) -> None:
    """Have `t` hold this, and no more."""
    _whole.__set__(t, held)
    for name, s in _SLOTS.items():
        if name in slots:
            s.__set__(t, slots[name])
        elif _is_set(s, t):
            s.__delete__(t)


def whole(holder: Any) -> dict[str, Any] | None:
    """The dictionary of an instance, ours included; None: it has none."""
    return _whole.__get__(holder) if isinstance(holder, Held) else getattr(holder, "__dict__", None)


def become(t: Any, cls: type) -> Any:
    """A fresh tensor as one of a class: itself, or, where the class has slots, one that takes over
    all that it holds.
    """
    try:
        t.__class__ = cls
    except TypeError:
        new: Any = object.__new__(cls)
        _take(new, _whole.__get__(t), _slots_of(t))
        return new
    return t


def exchange(one: Any, other: Any) -> None:
    """Each of two tensors becomes what the other was."""
    first = _whole.__get__(one), _slots_of(one)
    _take(one, _whole.__get__(other), _slots_of(other))
    _take(other, *first)


def ours(cls: type) -> set[str]:
    """What the classes of this package keep on an instance, besides what is `_skimp_...`."""
    kept: set[str] = set()
    for c in cls.__mro__:
        names = getattr(c, "__annotations__", {})
        if "_storage" in names or getattr(c, "_hollow", False):
            kept.update(names)
    return kept


def own(t: Any) -> dict[str, Any]:
    """What a program has set on a tensor."""
    names = ours(type(t))
    held = _whole.__get__(t).copy()  # in one step: another thread may set one meanwhile
    return {k: v for k, v in held.items() if k not in names and not k.startswith("_skimp_")}


class Own(dict[str, Any]):
    """The same; what is changed here is changed on the tensor."""

    __slots__ = ("_tensor",)

    def __init__(self, t: Any) -> None:
        super().__init__(own(t))
        self._tensor = t

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _changing(name: str) -> Callable[..., Any]:
    change = getattr(dict, name)

    def changed(self: Own, *args: Any, **values: Any) -> Any:
        before = own(self._tensor)  # which may have changed since this was asked for
        dict.clear(self)
        dict.update(self, before)
        found = change(self, *args, **values)
        held = _whole.__get__(self._tensor)
        for gone in before.keys() - self.keys():
            held.pop(gone, None)
        held.update({k: v for k, v in self.items() if before.get(k, held) is not v})
        return found

    changed.__name__, changed.__qualname__, changed.__doc__ = name, f"Own.{name}", change.__doc__
    return changed


_CHANGING = ("__setitem__", "__delitem__", "__ior__", "update", "setdefault", "pop", "popitem")
for _name in (*_CHANGING, "clear"):
    setattr(Own, _name, _changing(_name))


class Shown:
    """`t.__dict__`: what a program has set. It can be changed, and another can take its place."""

    def __get__(self, t: Any, cls: Any = None) -> Any:
        return self if t is None else Own(t)

    def __set__(self, t: Any, fields: Mapping[str, Any]) -> None:
        if not isinstance(fields, dict):
            kind = type(fields).__name__
            raise TypeError(f"__dict__ must be set to a dictionary, not a '{kind}'")
        held = _whole.__get__(t)
        new = dict(fields)
        for name in own(t):
            held.pop(name, None)
        held.update(new)

    def __delete__(self, t: Any) -> None:
        self.__set__(t, {})


def show_first(cls: type) -> None:
    """Have a new class show its fields so too where a class that is no tensor stands before Tensor
    among its bases: `t.__dict__` would be that class's, and the whole.
    """
    first = next(c.__dict__["__dict__"] for c in cls.__mro__ if "__dict__" in c.__dict__)
    if isinstance(first, Shown) or getattr(cls.__getattribute__, "shows", False):
        return
    get: Any = cls.__getattribute__
    put: Any = cls.__setattr__
    remove: Any = cls.__delattr__
    shown = Shown()

    def look(self: Any, name: str) -> Any:
        return Own(self) if name == "__dict__" else get(self, name)

    def write(self: Any, name: str, value: Any) -> None:
        shown.__set__(self, value) if name == "__dict__" else put(self, name, value)

    def delete(self: Any, name: str) -> None:
        shown.__delete__(self) if name == "__dict__" else remove(self, name)

    look.shows = True  # type: ignore[attr-defined]
    for name, f in (("__getattribute__", look), ("__setattr__", write), ("__delattr__", delete)):
        f.__name__, f.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, f)
