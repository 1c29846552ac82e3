"""A Python program from a file or a module's name, run as `python` itself runs one."""

from __future__ import annotations

import gc
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from skimp._compat.table import ours


class BadProgram(Exception):
    """There is nothing to run; `code` is the exit code that Python gives for it."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Program:
    """A main module that has not run yet, and its code: source for the compiler, or compiled."""

    main: ModuleType
    code: bytes | CodeType

    def run(self) -> None:
        """Run it as `__main__`. What it raises comes out, a syntax error of its own included."""
        sys.modules["__main__"] = self.main
        code = self.code
        if isinstance(code, bytes):
            assert self.main.__file__ is not None
            code = compile(code, self.main.__file__, "exec", dont_inherit=True)
        exec(code, self.main.__dict__)


def load_file(path: str, args: Sequence[str]) -> Program:
    """The program in a file. Raises BadProgram if there is none."""
    if os.path.isdir(path):
        raise BadProgram(f"{path!r} is a directory; give it a file, or a module with -m")
    full = os.path.abspath(path)
    try:
        with io.open_code(full) as file:
            source = file.read()
    except OSError as error:
        raise BadProgram(f"can't open file {path!r}: {error.strerror}") from error
    sys.argv = [path, *args]
    _set_folder(os.path.dirname(os.path.realpath(path)))
    return Program(_main(full, SourceFileLoader("__main__", full), None), source)


def load_module(name: str, args: Sequence[str]) -> Program:
    """The program in a module or a package's `__main__`. Raises BadProgram if there is none."""
    sys.argv = ["-m", *args]  # what a package sees that is imported on the way
    _set_folder(os.getcwd())
    spec = _find(ours(name))
    if spec.submodule_search_locations is not None:
        spec = _find(f"{spec.name}.__main__")
    code = spec.loader.get_code(spec.name) if isinstance(spec.loader, InspectLoader) else None
    if code is None or spec.origin is None:
        raise BadProgram(f"module {name!r} has no Python code to run", 1)
    sys.argv[0] = spec.origin
    return Program(_main(spec.origin, spec.loader, spec), code)


def _find(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # a package on the way lacks something else
        spec = None
    if spec is None:
        raise BadProgram(f"no module named {name!r}", 1)
    return spec


def _main(file: str, loader: object, spec: ModuleSpec | None) -> ModuleType:
    """A `__main__` with the attributes that Python gives it; multiprocessing reads them, too."""
    # what is imported by now stays: no collection need go through it, nor the last one, which takes
    # the program's own objects with it as long as its module is not among what stays
    gc.freeze()
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=file,
        __cached__=spec.cached if spec else None,
        __builtins__=sys.modules["builtins"],
        __loader__=loader,
        __package__=spec.parent if spec else None,
        __spec__=spec,
    )
    return module


def _set_folder(folder: str) -> None:
    """Python's own `sys.path[0]` is ours by now: the script `skimp`, or its `-m`."""
    if not sys.flags.safe_path:  # with which there is none
        sys.path[0] = folder
