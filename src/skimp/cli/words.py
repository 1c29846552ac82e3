"""What the commands that run a program share: where its words begin, and how one says no."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence


def split(words: Sequence[str], valued: Collection[str]) -> tuple[list[str], list[str]]:
    """Our options, of which the `valued` take a word each, and the program with its own: from the
    first word that is no option.
    """
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in valued else 1
    return list(words[:at]), list(words[at:])


def refuse(command: str, message: str, code: int = 2) -> int:
    """Say on stderr why nothing runs; the exit code."""
    print(f"skimp {command}: {message}", file=sys.stderr)
    return code


def no_program(command: str, usage: str) -> int:
    """There is no program among the words; the exit code."""
    return refuse(command, f"there is no program to run\nusage: {usage}")
