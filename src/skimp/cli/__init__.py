"""The command `skimp`: one file per sub-command, and `main` that picks one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from skimp.cli import check, diff, fit, launch, run, torchrun
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
    launch.add_to(commands)
    torchrun.add_to(commands)
    if not words or words[0] not in commands.choices:
        parser.parse_args(words[:1])  # `--help`, `--version`, or an error: it does not return
    own = commands.choices[words[0]]  # the command's own parser: its errors show its own usage
    if words[0] == "run":
        options, program = run.split(words[1:])
        return run.main(own.parse_args(options), program)
    if words[0] == "fit":
        options, program = fit.split(words[1:])
        return fit.main(own.parse_args(options), program)
    if words[0] == "launch":
        options, program = launch.split(words[1:])
        return launch.main(own.parse_args(options), program)
    if words[0] == "torchrun":
        return torchrun.main(own.parse_args(words[1:]))
    if words[0] == "diff":
        return diff.main(own.parse_args(words[1:]))
    return check.main(own.parse_args(words[1:]))
