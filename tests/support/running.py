"""Starting `skimp run` as a user does, for the tests of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.warm import WITH_PYTORCH, WITH_SKIMP, Done

SKIMP = [sys.executable, "-m", "skimp"]
WITH_WARNINGS = replace(WITH_SKIMP, flags=("-W", "error"))  # each an error

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


def skimp(*words: str, cwd: Path, **environment: str) -> Done:
    """The command in a process that has imported skimp. What is about its start uses `start`."""
    return WITH_SKIMP.run([*SKIMP, *words], cwd, **environment)


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
    """By program, the lines that it prints under PyTorch; `flags` are the interpreter's."""
    warm = replace(WITH_PYTORCH, flags=flags)
    done = warm.run([sys.executable, write(folder, _EACH), *paths], folder)
    assert done.returncode == 0, done.stderr
    printed: dict[str, list[str]] = json.loads(done.stdout)
    return printed
