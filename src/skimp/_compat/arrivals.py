"""What is to be done once a program imports a module that need not be there yet.

`multiprocessing` brings sockets, 1.1 MiB, for programs of which most start no process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Call = Callable[[Any], object]


def when_imported(name: str, call: Call) -> None:
    """Call it with the module: now, if it is there, else as soon as it has been imported."""
    forget(name, call)
    arrival = _Arrival(name, call)
    sys.meta_path.insert(0, arrival)  # first: another thread may begin to import it meanwhile
    if sys.modules.get(name) is not None:
        arrival.came(import_module(name))  # which waits where another thread is at it


def forget(name: str, call: Call) -> None:
    """Do nothing when that module is imported."""
    sys.meta_path[:] = [
        finder for finder in sys.meta_path
        if not (isinstance(finder, _Arrival) and (finder.name, finder.call) == (name, call))
    ]  # fmt: skip


class _Arrival:
    """Finds the module where others find it, and stays until it has been loaded."""

    def __init__(self, name: str, call: Call) -> None:
        self.name = name
        self.call = call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders: list[Any] = list(sys.meta_path)
        if fullname != self.name or self not in finders:
            return None
        for finder in finders[finders.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None

    def came(self, module: Any) -> None:
        """Call once, not a second time by whoever loads it again."""
        try:
            sys.meta_path.remove(self)
        except ValueError:
            return
        self.call(module)


class _Loader:
    """Loads as the module's own loader does, which the module has afterwards."""

    def __init__(self, own: Any, arrival: _Arrival) -> None:
        self._own = own
        self._arrival = arrival

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._arrival.came(module)

    def __getattr__(self, name: str) -> Any:
        """What the own one tells of sources, code and data, for who asks only where it lies."""
        return getattr(self._own, name)
