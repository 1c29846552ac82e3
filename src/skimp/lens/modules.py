"""The paths of modules, as programs know them: `blocks.3.mlp.0` below the outermost module."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import chain, count
from typing import Any, Final, NamedTuple

from skimp.nn.modules.compiled import WRAPPED

_FEW: Final = 64  # modules that may be gone


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
        # by a module's id and the number of the one that calls it
        self.modules: dict[tuple[int, int], tuple[weakref.ref[Any], int]] = {}
        self._most = _FEW
        self._roots: list[tuple[weakref.ref[Any], Path]] = []

    def number(self, path: Path) -> int:
        """A path's number; what `torch.compile` was given is called by its own name."""
        if WRAPPED in path.path:
            names = [name for name in path.path.split(".") if name != WRAPPED]
            path = Path(path.root, ".".join(names))
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
        known = self.modules.get(key)
        if known is not None and known[0]() is module:
            return known[1]
        found = self._find(module, parent, inside)
        self.modules[key] = weakref.ref(module), found
        if len(self.modules) > self._most:  # modules that are gone need no place
            for gone in [k for k, one in list(self.modules.items()) if one[0]() is None]:
                self.modules.pop(gone, None)
            self._most = max(_FEW, 2 * len(self.modules))
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
        self._roots = [one for one in self._roots if one[0]() is not None]
        taken = {root.root for _, root in self._roots}
        inner = module._modules.get(WRAPPED, module)
        name = type(inner).__name__
        # a program may make modules all the time: names of those that are gone are given again
        free = chain([name], (f"{name}#{number}" for number in count(2)))
        root = Path(next(n for n in free if n not in taken), "")
        self._roots.append((weakref.ref(module), root))
        number = self.number(root)
        self._met(inner, root)
        return number


def _name_in(outer: Any, module: Any) -> str | None:
    for name, child in outer._modules.items():
        if child is module:
            return str(name)
    for name, one in outer.named_modules():
        if one is module:
            return str(name)
    return None
