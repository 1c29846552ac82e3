"""An import hook: `torch` and `torch.x.y` are the module objects `skimp` and `skimp.x.y`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from skimp._compat import homes
from skimp._compat.arrivals import forget, when_imported
from skimp._compat.missing import nearest
from skimp._compat.table import OURS, THEIRS, ours, theirs

# A folder with a package `torch` that installs this hook. It stands in sys.path for the sake of
# processes that `multiprocessing` starts afresh: they get the parent's sys.path, and no hooks.
SHIM = os.path.join(os.path.dirname(__file__), "shim")
CHILD = "skimp._compat.child"


class Finder:
    """Finds `torch` and everything below it, and nothing else. (The classes of `importlib.abc`,
    which it need not have, bring 30 modules.)"""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != THEIRS and not fullname.startswith(THEIRS + "."):
            return None
        real = ours(fullname)
        if importlib.util.find_spec(real) is None:
            raise _no_module(fullname, real)
        return ModuleSpec(fullname, _Alias(real))  # type: ignore[arg-type]


class _Alias:
    """Puts an existing module where the import system looks for a new one.

    Done in `exec_module`: a module returned by `create_module` would get the new name's `__spec__`.
    """

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> None:
        """The import system makes the new one."""

    def exec_module(self, module: ModuleType) -> None:
        real = importlib.import_module(self._real)
        sys.modules[module.__name__] = real
        real.__name__ = module.__name__  # libraries that patch PyTorch's ask modules who they are


def install() -> None:
    """From now on `import torch` gives skimp, here and in processes that multiprocessing starts.

    Raises RuntimeError where PyTorch itself is already imported: a program can't have both.
    """
    present = sys.modules.get(THEIRS)
    if present is not None and present is not sys.modules.get(OURS):
        place = getattr(present, "__file__", None) or "no file"
        raise RuntimeError(
            f"torch is already imported ({place}), so that name can't stand for skimp; "
            "call skimp._compat.install() before the first import of torch"
        )
    if _installed():
        return
    sys.meta_path.insert(0, Finder())
    join()
    sys.path.insert(1, SHIM)
    # Its server imports these modules at its start, and by default the main module first, whose
    # `import torch` would come too early.
    when_imported("multiprocessing", _preload)


def _installed() -> bool:
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


def _share_modules() -> None:
    """Modules that are there say PyTorch's names, and are found by them."""
    for name, module in list(sys.modules.items()):
        parts = name.split(".")
        if parts[0] != OURS or len(parts) == 1 or parts[1] in _OWN:
            continue
        if not any([part.startswith("_") for part in parts]):
            sys.modules.setdefault(theirs(name), module)
            module.__name__ = theirs(name)


_OWN = frozenset({"array_api", "cli", "config", "errors", "lens", "memory"})  # PyTorch has none


def join() -> None:
    """Let what a program has loaded by now say PyTorch's names, if they stand for ours: the last
    line of packages that are loaded when they are named.
    """
    if _installed():
        _rename(OURS, THEIRS)
        _share_modules()
        homes.give_homes()


def uninstall() -> None:
    """Forget the name `torch` again; modules that imported it keep what they have."""
    homes.take_homes()
    _rename(THEIRS, OURS)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    sys.path[:] = [entry for entry in sys.path if entry != SHIM]
    for name, module in list(sys.modules.items()):
        if ours(name) != name and module is sys.modules.get(ours(name)):
            module.__name__ = ours(name)
            del sys.modules[name]
    beside = set(os.listdir(SHIM))  # functorch
    for name in [name for name in sys.modules if name.partition(".")[0] in beside]:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(SHIM):
            del sys.modules[name]
    forget("multiprocessing", _preload)
    started = sys.modules.get("multiprocessing")
    if started is not None:
        started.set_forkserver_preload(["__main__"])


def _preload(multiprocessing: Any) -> None:
    multiprocessing.set_forkserver_preload([CHILD])


_BARE = ("Tensor", "Size", "dtype", "device")
_SHOWN = (
    "nn", "nn.parameter", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "optim",
    "optim.lr_scheduler", "optim.swa_utils", "utils.data", "distributions",
    "distributions.constraints", "amp", "autograd", "autograd.function",
)  # fmt: skip


def _rename(old: str, new: str) -> None:
    """Classes that programs print say that they are from `new`, in the modules of `old`'s names."""
    whole = sys.modules.get(OURS)
    for name in _BARE:
        cls = getattr(whole, name, None)
        if cls is not None:
            _HOMES.setdefault(name, cls.__module__)
            cls.__module__ = THEIRS if new == THEIRS else _HOMES[name]
    for place in _SHOWN:
        for cls in list(vars(sys.modules.get(f"{OURS}.{place}", ModuleType(""))).values()):
            if isinstance(cls, type) and cls.__module__.startswith(old + "."):
                home, cls.__module__ = cls.__module__, new + cls.__module__[len(old) :]
                # Who evaluates a class's annotations looks its module up by that name.
                if home in sys.modules:
                    sys.modules.setdefault(cls.__module__, sys.modules[home])


_HOMES: dict[str, str] = {}


def _no_module(fullname: str, real: str) -> ModuleNotFoundError:
    parent, _, last = real.rpartition(".")
    paths = getattr(sys.modules.get(parent), "__path__", [])
    hint = nearest(last, (found.name for found in pkgutil.iter_modules(paths)))
    return ModuleNotFoundError(f"No module named {fullname!r} in skimp{hint}", name=fullname)
