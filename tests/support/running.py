"""Starting `skimp run` as a user does, for the tests of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

SKIMP = [sys.executable, "-m", "skimp"]
Done = subprocess.CompletedProcess[str]

default_mode = pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") != "auto", reason="runs in the default mode only"
)

# All programs in one process, because PyTorch takes longer to import than a program to run.
_EACH = """
    import contextlib, io, json, runpy, sys
    printed = {}
    for path in sys.argv[1:]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            runpy.run_path(path, None, "__main__")
        printed[path] = out.getvalue().splitlines()
    print(json.dumps(printed))
"""

# The command many times, each in a fork of a process that has imported it.
_COMMANDS = """
    import gc, json, os, sys
    from skimp.cli import main
    gc.freeze()  # a fork that ends would go through all that was imported
    for number, words in enumerate(json.loads(sys.argv[1])):
        if not os.fork():
            for n, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{number}.{name}", os.O_WRONLY | os.O_CREAT), n)
            sys.argv = ["skimp", *words]
            sys.exit(main())
        print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def commands(each: Sequence[Sequence[str]], folder: Path) -> list[Done]:
    """What each of these command lines of skimp's comes to, one after another in one folder."""
    runner = [sys.executable, "-c", dedent(_COMMANDS), json.dumps(each)]
    done = start(runner, folder, PYTHONUNBUFFERED="1")
    assert done.returncode == 0, done.stderr
    codes = [int(line) for line in done.stdout.splitlines()]
    said = [[(folder / f"{n}.{s}").read_text() for s in ("out", "err")] for n in range(len(each))]
    return [Done(w, c, *texts) for w, c, texts in zip(each, codes, said, strict=True)]


def skimp(*words: str, cwd: Path, **environment: str) -> Done:
    return start([*SKIMP, *words], cwd, **environment)


def start(command: Sequence[str], cwd: Path, **environment: str) -> Done:
    env = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)


def write(folder: Path, code: str, name: str = "script.py") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(code))
    return name


def measured(done: Done) -> Any:
    """The JSON report: the last thing on stderr, whatever the program wrote there before."""
    return json.loads(done.stderr[done.stderr.index("\n{" if done.stderr[0] != "{" else "{") :])


def printed_by_pytorch(folder: Path, paths: Sequence[str], *flags: str) -> dict[str, list[str]]:
    """By program, the lines that it prints under PyTorch; `flags` are the interpreter's.

    One thread: these programs are small, and tests run side by side.
    """
    command = [sys.executable, *flags, write(folder, _EACH), *paths]
    done = start(command, folder, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    printed: dict[str, list[str]] = json.loads(done.stdout)
    return printed
