"""Where PyTorch says that its classes are from, and the functions that its pickles name: the `own`
rows of names.txt. Files name classes by it, and `type(x)` says it, as long as skimp stands for
`torch`.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any, Final

from skimp._compat.modules import Made
from skimp._compat.table import MODULES, OURS, THEIRS, ours, theirs

# {PyTorch's module below torch: {its name: (our module, our name)}}
HOMES: Final = {
    module[len(OURS) + 1 :]: owned
    for module, section in MODULES.items()
    if (owned := {n: (r.what, r.name) for n, r in section.rows.items() if r.verb == "own"})
}
# Modules whose functions stand in pickles that the standard library writes.
WRITERS: Final = ("_tensor", "_utils", "storage")
LAYERS: Final = "nn.functional"  # and one whose functions modules keep as attributes
FUNCTIONS: Final = ("", LAYERS, "linalg", "fft", "special")  # where public functions stand
_SPOKEN: Final = {
    OURS, f"{OURS}.functional", f"{OURS}.{LAYERS}",
    *[f"{OURS}._C{below}" for below in ("", "._nn", "._linalg", "._fft", "._special")],
}  # fmt: skip
_renamed: dict[Any, tuple[str, str, str]] = {}
_added: list[tuple[ModuleType, str]] = []


def give_homes() -> None:
    """Let the classes that are there say where PyTorch has them, and be found there; again, when
    others have come.
    """
    for name in MODULES:  # below a parent that is a file, the import system looks for nothing
        made = sys.modules.get(name)
        if isinstance(made, Made):
            sys.modules[theirs(name)] = made
            made.__name__ = theirs(name)
    # The package last: dtypes are in _C too, but pickle must find them in `torch`.
    for home, names in sorted(HOMES.items(), key=lambda row: not row[0]):
        module = sys.modules.get(f"{OURS}.{home}".rstrip("."))
        for shown, (source, name) in names.items():
            there = sys.modules.get(ours(source), module)
            value = vars(there).get(name) if there is not None else None
            if value is None:
                continue
            if home and module is not None and shown not in vars(module):
                _add(module, shown, value)
            renamed = isinstance(value, type) or (callable(value) and home in WRITERS)
            if renamed and value.__module__.partition(".")[0] in (OURS, THEIRS):
                _renamed.setdefault(value, (value.__module__, value.__name__, value.__qualname__))
                value.__module__ = f"{THEIRS}.{home}".rstrip(".")
                value.__name__ = value.__qualname__ = shown
    for space in FUNCTIONS:
        module = sys.modules.get(f"{OURS}.{space}".rstrip("."))
        for value in vars(module).values() if module is not None else ():
            _rename(getattr(value, "__func__", value))
    for value in vars(vars(sys.modules[OURS])["Tensor"]).values():
        _rename(value)


def _rename(f: Any) -> None:
    """Let a public function say that it is PyTorch's."""
    home = f.__module__ if isinstance(f, FunctionType) else ""
    if home in _SPOKEN:
        _renamed.setdefault(f, (home, f.__name__, f.__qualname__))
        f.__module__ = theirs(home)


def take_homes() -> None:
    """Undo `give_homes`."""
    for cls, names in _renamed.items():
        cls.__module__, cls.__name__, cls.__qualname__ = names
    for module, name in _added:
        delattr(module, name)
    _renamed.clear()
    _added.clear()


def _add(module: ModuleType, name: str, value: Any) -> None:
    setattr(module, name, value)
    _added.append((module, name))
