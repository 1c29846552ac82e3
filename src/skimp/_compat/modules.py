"""The factory: PyTorch's modules that are rows of names.txt, and rows beside a module's own code.

Nothing that a row names is imported or made before it is asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from skimp._compat import refusals
from skimp._compat.missing import missing
from skimp._compat.table import MODULES, Module, Row, ours, theirs

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_made: dict[tuple[str, str], Any] = {}


class Made(types.ModuleType):
    """A module that has rows and no file. There are 330: what nobody asks one for, it has not."""

    def __init__(self, name: str, section: Module) -> None:
        super().__init__(name, f"{theirs(name)}: {section.doc or 'names that are elsewhere.'}")
        self._home = name  # `__name__` follows the name `torch`

    @property
    def __spec__(self) -> ModuleSpec:  # type: ignore[override]
        return ModuleSpec(self._home, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":
            made: Any = []
        elif name == "__all__":
            made = public(self._home)
        else:
            return lookup(self._home)(name)
        setattr(self, name, made)
        return made

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *MODULES[self._home].rows})


def public(module: str) -> list[str]:
    """The names of a module's rows, but no private ones."""
    return [name for name in _section(module).rows if not name.startswith("_")]


def listed(module: str, space: dict[str, Any]) -> list[str]:
    """What `dir` shows of a module with code of its own: its rows too, but for what they refuse."""
    rows = _section(module).rows
    return sorted({*space, *[n for n, row in rows.items() if row.verb not in ("refuse", "raise")]})


def _section(module: str) -> Module:
    """A module's rows, also where it says PyTorch's name by now: what it imports may have seen to
    that (`finder.join`).
    """
    return MODULES.get(ours(module)) or Module("", {})


def lookup(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: what its rows say, each made once, when it is first asked for."""
    section = _section(module)

    def find(name: str) -> Any:
        if (module, name) not in _made:
            row = section.rows.get(name)
            if row is None:
                return _inner(module, name, section)
            _made[module, name] = _make(module, name, row)
        return _made[module, name]

    return find


def _inner(module: str, name: str, section: Module) -> types.ModuleType:
    """The module of that name below, imported now if it is not yet; the error where there is none.

    PyTorch's packages import most of what is below them, so that programs write
    `torch.distributed.device_mesh` without an import of it.
    """
    inner = f"{module}.{name}"
    found = sys.modules.get(inner)
    if found is not None:
        return found
    space = vars(sys.modules[module])
    if "__path__" in space and not name.startswith("__") and has_file(inner):
        return importlib.import_module(inner)
    raise missing(theirs(module), name, space, section.rows)


def _make(module: str, name: str, row: Row) -> Any:
    if row.verb == "refuse":
        return refusals.refusal(module, name, row.what)
    if row.verb == "raise":
        error, _, text = row.what.partition(" ")
        refused = refusals.refusing(name, _ERRORS[error], text)
        refused.__module__ = module
        return refused
    if row.verb == "module":
        return importlib.import_module(f"{module}.{name}")
    if row.verb == "value":
        return eval(row.what, _WORDS)
    if row.verb == "call":
        return _function(module, name, row)
    return getattr(importlib.import_module(ours(row.what)), row.name)


def _function(module: str, name: str, row: Row) -> Callable[..., Any]:
    made: Any = eval(f"lambda {row.name}: {row.what}", _WORDS)
    made.__name__ = made.__qualname__ = name
    made.__module__ = module
    made.__doc__ = f"Always `{row.what}`."
    return made  # type: ignore[no-any-return]


class Unchanged(contextlib.nullcontext[None]):
    """A context, and a decorator that gives the function itself."""

    def __call__(self, fn: Any) -> Any:
        return fn


def same(fn: Any) -> Any:
    """A decorator that gives the function itself."""
    return fn


_ERRORS = {
    e.__name__: e for e in (AssertionError, AttributeError, OSError, RuntimeError, ValueError)
}
# what the expressions of rows may name besides arguments and builtins
_WORDS = {
    "SimpleNamespace": types.SimpleNamespace,
    "Unchanged": Unchanged,
    "nullcontext": contextlib.nullcontext,
    "same": same,
}


def has_file(name: str) -> bool:
    """Whether there is code for a module of ours."""
    place = os.path.join(_PACKAGE, *name.split(".")[1:])
    return os.path.exists(f"{place}.py") or os.path.exists(os.path.join(place, "__init__.py"))


def serve() -> None:
    """From now on modules that have rows and no file can be imported, as attributes too.

    `importlib` looks into `sys.modules` first, so no finder is needed, and nothing gets slower.
    """
    for name, section in MODULES.items():
        if name not in sys.modules and not has_file(name):
            sys.modules[name] = Made(name, section)
    for name in MODULES:
        above, _, last = name.rpartition(".")
        made = sys.modules.get(name)
        if isinstance(made, Made) and above in sys.modules and last not in _section(above).rows:
            vars(sys.modules[above]).setdefault(last, made)
