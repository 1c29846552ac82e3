"""`loops` as C, where `skimp compile` has made it for this processor and this Python.

Skimp runs without it, and leaves it alone with `SKIMP_COMPILED=never`: with the same bits, but for
what loops add up in lanes or in double, which no process has in two ways.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import warnings
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, source_hash, spec_from_loader
from typing import Any, Final

import numpy as np

from skimp._kernels import teams
from skimp._kernels.locks import reentrant
from skimp.config import choice

FOLDER: Final = os.path.join(os.path.dirname(__file__), "loops")
# Without checks that would cost each element: who calls has seen to sizes.
DIRECTIVES: Final = (
    "boundscheck=False", "wraparound=False", "cdivision=True", "initializedcheck=False",
    "annotation_typing=False",
)  # fmt: skip
# No operation is joined with another, so that bits are NumPy's.
FLAGS: Final = (
    "-shared", "-fPIC", "-O3", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing",
    "-fno-math-errno",  # else roots are calls, one by one
)  # fmt: skip
TEAMS: Final = "-fopenmp"  # of gcc, whose OpenMP is oneDNN's too: then one team serves both
_PROCESSOR: Final = "/proc/cpuinfo"
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


_chosen: Final = choice("SKIMP_COMPILED", os.environ)
_loading: Final = reentrant()


def place() -> str:
    """Where the module is, or would be: its name tells the source, the interpreter, NumPy and what
    the processor can do, so that none is loaded that was made for another."""
    versions = sys.version, np.__version__  # whose structures are part of it
    how = *DIRECTIVES, *FLAGS, TEAMS, *versions, platform.machine(), *_abilities()
    told = "\n".join([*sources(".h", ".pxd", ".py"), *how])
    name = f"loops-{source_hash(told.encode()).hex()}{EXTENSION_SUFFIXES[0]}"
    return os.path.join(_cache(), name)


def _cache() -> str:
    """The folder of what the user's `skimp compile` has made."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "skimp")


def sources(*kinds: str) -> list[str]:
    """What stands in the files of `loops` of these kinds, but for the package's own."""
    names = [one for one in sorted(os.listdir(FOLDER)) if one.endswith(kinds)]  # no editor's
    return [_text(os.path.join(FOLDER, one)) for one in names if one[0] not in "_."]


def _text(file: str) -> str:
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def _abilities() -> list[str]:
    """The processor's, as Linux lists them: its model, where another system does not."""
    if not os.path.exists(_PROCESSOR):
        return [platform.processor()]
    lines = _text(_PROCESSOR).splitlines()
    return [line for line in lines if line.startswith(("flags", "Features", "isa"))][:1]


@cache
def loops() -> Any:
    """The compiled module; None where there is none."""
    if _chosen == "never":
        return None
    with _loading:  # until it is whole: threads that ask meanwhile would find it without functions
        return _found()


@cache
def _found() -> Any:
    if not os.path.isdir(_cache()):  # nothing was ever made: sources and processor are not read
        return None
    try:
        file = place()
    except OSError:  # no sources: they are in an archive, or only their bytecode is there
        return None
    if not is_ours(file):
        return None
    try:
        return load(file)
    except (ImportError, RuntimeError) as error:
        warnings.warn(
            f"what `skimp compile` made can't be loaded ({error}); skimp does without it, more "
            f"slowly and with other last bits: run `skimp compile` again, or remove {file}",
            stacklevel=3,
        )
        return None


def is_ours(file: str) -> bool:
    """Whether it is there, and nobody but this user (or the system's) can have written it."""
    try:
        told = [os.stat(path) for path in (file, os.path.dirname(file))]
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    return all([one.st_uid in (os.getuid(), 0) and not one.st_mode & _OTHERS for one in told])


def taking(*arrays: Any) -> Any:
    """The compiled module, if these are its: float32 that lie row by row, of any shapes."""
    found = loops()
    return found if found is not None and found.floats(*arrays) else None


def load(file: str) -> Any:
    """The module of this file."""
    spec = spec_from_loader("loops", ExtensionFileLoader("loops", file))
    assert spec is not None
    with teams.patience():  # OpenMP is loaded with it
        found = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(found)
    return found
