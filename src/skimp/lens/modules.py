"""The paths of modules, as programs know them: `blocks.3.mlp.0` below the outermost module."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple


class Path(NamedTuple):
    """A module's place below the outermost module, whose class (and number, if another of that
    class was met before) is `root`. Both are empty outside of modules.
    """

    root: str
    path: str


class Paths:
    """Numbers of paths, and which module has which."""

    def __init__(self, met: Callable[[Any, Path], None]) -> None:
        """`met` is told of each outermost module when it is called first."""
        self.known: list[Path] = [Path("", "")]
        self._met = met
        self._numbers: dict[Path, int] = {self.known[0]: 0}
        self._modules: dict[tuple[int, int], tuple[weakref.ref[Any], int]] = {}
        self._roots: list[tuple[weakref.ref[Any], Path]] = []
        self._classes: dict[str, int] = {}

    def number(self, path: Path) -> int:
        """A path's number."""
        found = self._numbers.get(path)
        if found is None:
            self.known.append(path)
            found = self._numbers.setdefault(path, len(self.known) - 1)
        return found

    def of(self, module: Any, parent: Any, inside: int) -> int:
        """The number of a module's path; `parent` is the module that calls it, `inside` its
        number.
        """
        key = id(module), inside
        known = self._modules.get(key)
        if known is not None and known[0]() is module:
            return known[1]
        found = self._find(module, parent, inside)
        self._modules[key] = weakref.ref(module), found
        return found

    def _find(self, module: Any, parent: Any, inside: int) -> int:
        if parent is not None:
            above = self.known[inside]
            name = _name_in(parent, module)
            if name is not None:
                return self.number(Path(above.root, f"{above.path}.{name}".lstrip(".")))
        for ref, root in self._roots:
            outermost = ref()
            name = None if outermost is None else _name_in(outermost, module)
            if name is not None:
                return self.number(Path(root.root, name))
        if parent is not None and type(module).__module__.startswith("skimp."):
            return inside  # a helper of a module, without a name in it
        return self._new_root(module)

    def _new_root(self, module: Any) -> int:
        name = type(module).__name__
        count = self._classes[name] = self._classes.get(name, 0) + 1
        root = Path(name if count == 1 else f"{name}#{count}", "")
        self._roots = [one for one in self._roots if one[0]() is not None]
        self._roots.append((weakref.ref(module), root))
        number = self.number(root)
        self._met(module, root)
        return number


def _name_in(outer: Any, module: Any) -> str | None:
    for name, child in outer._modules.items():
        if child is module:
            return str(name)
    for name, one in outer.named_modules():
        if one is module:
            return str(name)
    return None
