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

SKIMP = [sys.executable, "-m", "skimp"]
Done = subprocess.CompletedProcess[str]


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
