"""`skimp diff`: two reports side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from skimp.lens import Report, diff, load, to_html


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
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="write a page with both runs side by side too",
    )


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
    before, after = reports
    diff.show(before, after, sys.stdout)
    return 0 if options.report is None else _write(options.report, before, after)


def _write(page: Path, before: Report, after: Report) -> int:
    try:
        page.write_text(to_html(before, after), encoding="utf-8")
    except OSError as error:
        print(f"skimp diff: can't write {str(page)!r}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
