"""`skimp compile`: the loops of `_kernels/loops` as C, for this processor and this Python."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled

_APART: Final = re.compile(  # what a file by itself imports
    r"^from (?:__future__|skimp\._kernels\.loops\.\w+) import (?:\([^)]*\)|.*)\n", re.MULTILINE
)

KEPT: Final = 8  # modules of other sources that stay, those that were used last
DAY: Final = 86_400.0  # seconds; who was used within one stays: many checkouts work side by side
OLD: Final = 30 * DAY  # since it was used: nobody will


def add_to(commands: Any) -> None:
    """Declare the command."""
    commands.add_parser(
        "compile",
        help="make C of the loops that are quicker than NumPy's calls",
        description="Compile skimp's loops for this processor and this Python, with Cython and a "
        "C compiler ($CC, or cc), into the user's cache; programs that start later use them, with "
        "the same results but for the last bits of some. SKIMP_COMPILED=never does without.",
        allow_abbrev=False,
    )


def main() -> int:
    """Compile, and say where to; the exit code."""
    lacking = _lacking()
    if lacking is not None:
        print(f"skimp compile: {lacking}", file=sys.stderr)
        return 1
    file = Path(compiled.place())
    try:
        said = _put(file)
    except (OSError, ImportError) as error:  # it can't be written there, or not be run from there
        said = f"{error}; name another folder for caches in XDG_CACHE_HOME"
    if said:
        print(f"skimp compile: {said}", file=sys.stderr)
        return 1
    print(file)
    return 0


def _put(file: Path) -> str:
    """Make the module, there; why that can't be, or nothing."""
    file.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made, said = _made(Path(folder))
        if made is None:
            return said
        made.chmod(0o700)
        compiled.load(str(made))
        made.replace(file)  # at once: a program that starts now finds it whole, or none
    forget_old(file)
    if compiled.is_ours(str(file)):
        return ""
    return (
        f"others may write to {file.parent}, so programs load nothing from there; "
        f"chmod go-w {shlex.quote(str(file.parent))}, and run it again"
    )


def forget_old(file: Path) -> None:
    """Remove modules of this Python that nobody seems to use any more. Programs that have one
    loaded keep it."""
    kind = "".join(file.suffixes)  # another Python's are its own to remove
    others = [one for one in file.parent.glob(f"loops-*{kind}") if one != file]
    for place, one in enumerate(sorted(others, key=_used, reverse=True)):
        age = time.time() - _used(one)
        if age > OLD or (place >= KEPT and age > DAY):
            with contextlib.suppress(OSError):  # another user's, or another command was here first
                one.unlink()


def _used(file: Path) -> float:
    """When it was made or, where the file system says so, read; 0 if it is gone."""
    try:
        told = file.stat()
    except OSError:
        return 0.0
    return max(told.st_mtime, told.st_atime)


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def _lacking() -> str | None:
    """What is missing, and what to do about it."""
    if importlib.util.find_spec("Cython") is None:
        return "Cython is not installed; pip install cython, and run it again"
    compiler = _compiler()
    if not compiler or shutil.which(compiler[0]) is None:
        return "there is no C compiler; install one (gcc, clang), or name it in CC"
    return None


def _joined(kind: str) -> str:
    """All files of loops as one: there they need not import each other."""
    return _APART.sub("", "\n".join(compiled.sources(kind)))


def _made(folder: Path) -> tuple[Path | None, str]:
    """The module, or None and what a command said."""
    for kind in (".py", ".pxd"):
        (folder / f"loops{kind}").write_text(_joined(kind), encoding="utf-8")
    text, made = folder / "loops.c", folder / "loops.so"
    directives = [word for one in compiled.DIRECTIVES for word in ("-X", one)]
    folders = compiled.FOLDER, sysconfig.get_paths()["include"], np.get_include()
    include = [f"-I{one}" for one in folders]
    cython = [sys.executable, "-m", "cython", "-3", *directives, "loops.py", "-o", text.name]
    said = _said(cython, folder)
    if said:
        return None, said
    command = [*_compiler(), *compiled.FLAGS, *include, text.name, "-o", made.name]
    told = subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, check=False)
    if "clang" in told.stdout or _said([*command, compiled.TEAMS], folder):
        said = _said(command, folder)  # without teams: every loop runs on one thread
    return (None, said) if said else (made, "")


def _said(command: list[str], folder: Path) -> str:
    """What a command says that fails; nothing of one that does not."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return f"{shlex.join(command)} failed:\n{done.stderr}" if done.returncode else ""
