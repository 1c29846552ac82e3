"""The command `skimp`: one file per sub-command, and `main` that picks one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from skimp.cli import check, compiling, diff, fit, launch, run, torchrun
from skimp.cli.words import split
from skimp.version import VERSION

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; SystemExit comes out as it is."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="skimp", description="PyTorch programs on NumPy, where memory comes first."
    )
    parser.add_argument("--version", action="version", version=f"skimp {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    run.add_to(commands)
    fit.add_to(commands)
    check.add_to(commands)
    diff.add_to(commands)
    compiling.add_to(commands)
    launch.add_to(commands)
    torchrun.add_to(commands)
    if not words or words[0] not in commands.choices:
        parser.parse_args(words[:1])  # `--help`, `--version`, or an error: it does not return
    own = commands.choices[words[0]]  # the command's own parser: its errors show its own usage
    for command in (run, fit, launch):  # whose last words are a program with its own options
        if words[0] == command.NAME:
            options, program = split(words[1:], command.TAKES_VALUE)
            code: int = command.main(own.parse_args(options), program)
            return code
    if words[0] == "torchrun":
        return torchrun.main(own.parse_args(words[1:]))
    if words[0] == "diff":
        return diff.main(own.parse_args(words[1:]))
    if words[0] == "compile":
        own.parse_args(words[1:])
        return compiling.main()
    return check.main(own.parse_args(words[1:]))
