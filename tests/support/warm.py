"""Programs in processes that have their imports behind them, which take most of a small program's
time: one process has imported, and forks (tests/support/forking.py).

What a test holds of a start itself needs a process of its own: `tests.support.running.start`.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Done = subprocess.CompletedProcess[str]
Command = Sequence[str]

# What imports read of the environment begins so.
_READ_EARLY = ("SKIMP_", "OMP_", "OPENBLAS_", "ONEDNN_", "PYTHON")


@dataclass(frozen=True)
class Warm:
    """Commands that begin with `sys.executable`; the imports are done, and flags and variables are
    added.
    """

    imports: tuple[str, ...]
    flags: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def run(self, command: Command, cwd: Path, **environment: str) -> Done:
        """One command to its end, with these variables beside our own."""
        return self.run_together([command], cwd, [os.environ | environment])[0]

    def run_together(
        self, commands: Sequence[Command], cwd: Path, environments: Sequence[dict[str, str]]
    ) -> list[Done]:
        """Several beside each other, each in its environment, all to their ends."""
        with TemporaryDirectory() as folder:
            asked, said = [], []
            for number, (command, told) in enumerate(zip(commands, environments, strict=True)):
                assert command[0] == sys.executable
                files = [Path(folder, f"{number}.{stream}") for stream in ("out", "err")]
                for file in files:
                    file.touch()
                streams = [os.devnull, *map(str, files)]
                asked.append([command[1:], str(cwd), told | dict(self.variables), streams])
                said.append(files)
            codes = _answer(self, asked)
            texts = [[file.read_text() for file in files] for files in said]
        return [Done(c, n, *t) for c, n, t in zip(commands, codes, texts, strict=True)]


def _answer(warm: Warm, asked: list[list[Any]]) -> list[int]:
    variables = {k: v for k, v in asked[0][2].items() if k.startswith(_READ_EARLY)}
    process = _forking(warm, tuple(sorted(variables.items())))
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        codes: list[int] = json.loads(process.stdout.readline())
    except BaseException:  # a test that takes too long, too: its fork is not waited for
        process.kill()
        _forking.cache_clear()
        raise
    return codes


@cache
def _forking(warm: Warm, variables: tuple[tuple[str, str], ...]) -> subprocess.Popen[str]:
    """A process with these imports, made with these variables."""
    program = str(Path(__file__).with_name("forking.py"))
    early = {k: v for k, v in os.environ.items() if not k.startswith(_READ_EARLY)}
    process = subprocess.Popen(
        [sys.executable, *warm.flags, program, *warm.imports],
        env=early | dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        with process:
            process.kill()

    atexit.register(end)
    return process


WITH_SKIMP = Warm(("skimp.cli",))
# with what optimizers import, which takes another second, and of one thread: programs under test
# are small, and tests run side by side
WITH_PYTORCH = Warm(
    ("torch", "torch._dynamo", "skimp.cli"),
    variables=(("OMP_NUM_THREADS", "1"), ("SKIMP_THREADS", "1")),
)
