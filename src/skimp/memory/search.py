"""Who holds an object: a search from the program's names along references, as the garbage collector
knows them.

Names are the variables of running functions and of the program's modules. What this package and
Python's own library keep is looked at last, when no name of the program leads there.
"""

from __future__ import annotations

import gc
import inspect
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.memory.call_site import OWN_CODE

_INSTALLED: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")  # another environment's, too
_OPAQUE: Final = (
    *(str, bytes, int, float, complex, bool, type(None), ModuleType, CodeType),
    *(BuiltinFunctionType, np.dtype, np.generic, np.ufunc),
)


class Root(NamedTuple):
    """A name of the program: a variable of a module, or of a function that runs (or waits)."""

    name: str
    where: str  # the function or the module, empty for the main module
    file: str


class Paths:
    """What a search has met: each object with the one by which it was met first."""

    def __init__(self) -> None:
        self.parents: dict[int, Any] = {}  # by id: the object that refers to it, or its Root
        self.met: list[Any] = []  # so that ids stay theirs

    def to(self, value: Any) -> tuple[Root, list[Any]] | None:
        """The name that leads to an object that was met, and the objects from its value on."""
        path = [value]
        while True:
            parent = self.parents.get(id(path[-1]))
            if type(parent) is Root:
                return parent, path[::-1]
            if parent is None:
                return None
            path.append(parent)


def search(
    paths: Paths, targets: set[int], hidden: Iterable[Any] = ()
) -> Iterator[tuple[Any, Any]]:
    """Walk from all names, nearest first, and yield (holder, target) at each reference to an object
    whose id is a target; what only targets lead to is not met. `paths` notes the way, `hidden` are
    not looked at.
    """
    parents, met, ways = paths.parents, paths.met, _Ways()
    waiting: deque[Any] = deque()
    keyed: deque[Any] = deque()  # dicts, whose keys lead somewhere too: looked at last
    for one in (*hidden, waiting, keyed, ways, paths, targets):
        parents[id(one)] = None
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            parents[id(vars(module))] = None  # functions lead there: no way of holding

    def meet(holder: Any, values: Iterable[Any]) -> list[Any]:
        """Note what is met for the first time; gives the targets."""
        found = []
        for value in values:
            key = id(value)
            new = key not in parents and ways[type(value)] is not None
            if new:
                parents[key] = holder
                met.append(value)
            if key in targets:
                found.append(value)
            elif new:
                waiting.append(value)
        return found

    for root, value in list(roots()):  # to its end: it lets go of the frames that it has seen
        for target in meet(root, (value,)):
            yield root, target
    while waiting or keyed:
        if waiting:
            holder = waiting.popleft()
            way = ways[type(holder)]
            assert way is not None
            values = list(way(holder))
            if way is _of_dict and {*map(type, dict.keys(holder))} - {str}:
                keyed.append(holder)
        else:
            holder = keyed.popleft()
            values = list(dict.keys(holder))
        for target in meet(holder, values):
            yield holder, target


def _of_array(value: Any) -> Iterable[Any]:
    """The garbage collector is not told of an array's base."""
    return [value.base] if value.dtype != object else [value.base, *value.ravel().tolist()]


def _of_function(value: Any) -> Iterable[Any]:
    if value.__code__.co_filename.startswith(OWN_CODE):
        return ()
    return [*(value.__closure__ or ()), value.__defaults__, value.__kwdefaults__]


def _of_class(value: Any) -> Iterable[Any]:
    return vars(value).values() if _is_users(value.__module__) else ()


def _of_dict(value: Any) -> Iterable[Any]:
    return dict.values(value)


class _Ways(dict[type, Callable[[Any], Iterable[Any]] | None]):
    """By type, what tells to which objects an object refers; None for what leads nowhere. Asked of
    the type alone: proxies do things when they are asked.
    """

    _KINDS: Final = (
        (_OPAQUE, None),
        (np.ndarray, _of_array),
        (memoryview, lambda value: [value.obj]),
        (FunctionType, _of_function),
        (type, _of_class),
        (FrameType, lambda value: list(variables(value).values())),
        (dict, _of_dict),
    )

    def __missing__(self, kind: type) -> Callable[[Any], Iterable[Any]] | None:
        way: Callable[[Any], Iterable[Any]] | None = gc.get_referents
        for kinds, known in self._KINDS:
            if issubclass(kind, kinds):
                way = known
                break
        self[kind] = way
        return way


def roots() -> Iterator[tuple[Root, Any]]:
    """The program's names, nearest first, and their values."""
    for frame in sys._current_frames().values():
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if not is_library(code.co_filename) and code.co_name != "<module>":
                for name, value in variables(at).items():
                    yield Root(name, f"{code.co_name}()", code.co_filename), value
            at = at.f_back
    del frame  # this very one, perhaps: a reference cycle, and values of the program's in it
    modules = [m for n, m in list(sys.modules.items()) if _is_users(n) and hasattr(m, "__dict__")]
    main = sys.modules.get("__main__")
    for module in sorted(modules, key=lambda m: m is not main):
        where = "" if module is main else module.__name__
        file = getattr(module, "__file__", None) or ""
        for name, value in list(vars(module).items()):
            if not name.startswith(("__", "@")):
                yield Root(name, where, file), value


def variables(frame: FrameType) -> dict[str, Any]:
    """A frame's variables. CPython before 3.13 keeps the dict that it shows of a function's, and
    with it values that the function has let go of: that dict is emptied again.
    """
    shown = frame.f_locals
    found = dict(shown)
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(shown) is dict:
        shown.clear()
    return {name: value for name, value in found.items() if name[0] != "@"}  # pytest's own


@cache
def _library() -> tuple[str, ...]:
    """Where Python's own code and installed packages lie."""
    import sysconfig  # a table of how Python was built, for who asks what holds a tensor

    return tuple([p for p in {sysconfig.get_path(n) for n in ("stdlib", "purelib")} if p])


def is_library(file: str) -> bool:
    """Whether a file is this package's or Python's, or of an installed package."""
    return (
        file.startswith((*OWN_CODE, "<frozen", *_library())) or _INSTALLED.search(file) is not None
    )


def _is_users(name: str) -> bool:
    if name == "__main__":
        return True
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not is_library(file)
