"""What a file may name with `weights_only=False`: plain data, classes that the running
program has defined, and modules, optimizers and schedulers that it has imported.

Nothing is imported for a file's sake, and of functions a file gets the reference, not the call.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final

from skimp import optim
from skimp.nn import Module
from skimp.optim import Optimizer
from skimp.optim.lr_scheduler import LRScheduler

# What checkpoints hold beside tensors.
PLAIN: Final[dict[str, Any]] = {
    "argparse.Namespace": argparse.Namespace,
    "types.SimpleNamespace": SimpleNamespace,
    "collections.defaultdict": collections.defaultdict,
    "pathlib.PosixPath": pathlib.PosixPath,
    **{f"builtins.{kind.__name__}": kind for kind in (int, float, list, dict, tuple, frozenset)},
}
_INSTALLED = {"site-packages", "dist-packages"}


def find(module: str, name: str) -> Any:
    """The class or function of this name, or None."""
    if f"{module}.{name}" in PLAIN:
        return PLAIN[f"{module}.{name}"]
    if module.partition(".")[0] == "torch":
        return _of_torch(module, name)
    place = sys.modules.get(module)
    found: Any = place
    for part in name.split("."):
        found = getattr(found, part, None)
    if place is None or not isinstance(found, type | FunctionType):
        return None
    if (found.__module__, found.__qualname__) != (module, name):
        return None  # what the program has imported from elsewhere
    return found if _is_part_of_training(found) or _is_programs(place) else None


def _of_torch(module: str, name: str) -> Any:
    """An optimizer or scheduler, in whichever of its files PyTorch keeps it."""

    found = getattr(sys.modules.get(module.replace("torch", "skimp", 1)), name, None)
    if _is_part_of_training(found):
        return found
    for place in (optim, optim.lr_scheduler):
        found = getattr(place, name, None)
        if module.startswith("torch.optim") and _is_part_of_training(found):
            return found
    return None


def _is_part_of_training(found: Any) -> bool:

    return isinstance(found, type) and issubclass(found, Module | Optimizer | LRScheduler)


def _is_programs(place: ModuleType) -> bool:
    """Whether a module is the main one, or lies beside it or below."""
    main = sys.modules.get("__main__")
    if place is main:
        return True
    own, its = getattr(main, "__file__", None), getattr(place, "__file__", None)
    if own is None or its is None:
        return False
    path = Path(its).resolve()
    return path.is_relative_to(Path(own).resolve().parent) and not _INSTALLED & set(path.parts)
