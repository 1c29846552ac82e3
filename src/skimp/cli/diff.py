"""`skimp diff`: two reports side by side."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from skimp.lens import diff, load


def add_to(commands: Any) -> None:
    """Declare the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="say how the memory of two runs differs",
        description="Compare two reports that `skimp run --report FILE.json` wrote: what appeared, "
        "went, grew or shrank between their peaks, by role, module and line.",
        allow_abbrev=False,
    )
    parser.add_argument("before", metavar="before.json", help="the report to compare with")
    parser.add_argument("after", metavar="after.json", help="the other one")


def main(options: argparse.Namespace) -> int:
    """Compare them; 2 where one can't be read."""
    reports = []
    for path in (options.before, options.after):
        try:
            reports.append(load(path))
        except OSError as error:
            print(f"skimp diff: {path}: {error.strerror}", file=sys.stderr)
            return 2
        except (ValueError, KeyError, TypeError) as error:
            print(f"skimp diff: {path}: no report of `skimp run`: {error}", file=sys.stderr)
            return 2
    diff.show(reports[0], reports[1], sys.stdout)
    return 0
