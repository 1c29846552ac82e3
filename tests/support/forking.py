"""A program that imports what its words name, and then forks for each command that it reads; who
starts it is tests/support/warm.py.

A line of stdin is a list of commands that run beside each other, each with its words, its folder,
its variables and the files of its three streams; the answer is a line of exit codes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import types
import warnings
from typing import Any


def wanted() -> Any:
    """In each fork: what it is for. Who forks does not come back."""
    for line in sys.stdin:
        forks = []
        for command in json.loads(line):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of BLAS's threads
                forks.append(os.fork())
            if not forks[-1]:
                return command
        ends = [os.waitpid(fork, 0)[1] for fork in forks]
        print(json.dumps([os.waitstatus_to_exitcode(end) for end in ends]), flush=True)
    os._exit(0)


def become(folder: str, variables: dict[str, str], streams: list[str]) -> None:
    """Be where a process is that was started there."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    for number, path in enumerate(streams):
        file = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)


def run_command(words: list[str]) -> int:
    """`python -m skimp ...`."""
    sys.path[0], sys.argv = os.getcwd(), words
    code: int = sys.modules["skimp.cli"].main()
    return code


def run_program(words: list[str]) -> None:
    """`python path ...`."""
    path, sys.argv = words[0], words
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__)
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), main.__dict__)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # a fork that ends would go through all that was imported
    words, *place = wanted()
    become(*place)
    if words[:2] == ["-m", "skimp"]:
        sys.exit(run_command(words[1:]))
    run_program(words)
