"""`skimp run`: a program that imports torch runs on skimp and ends with a report of its memory."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skimp._engine.memory.sizes import parse_size
from skimp.cli import engines, guard, tracebacks
from skimp.cli.compare import compare
from skimp.cli.listen import Destination, Listener, Wishes
from skimp.cli.program import BadProgram, Program, load_file, load_module
from skimp.cli.words import no_program, refuse
from skimp.distributed import mpi
from skimp.lens.sections import SECTIONS

NAME = "run"
USAGE = "skimp run [options] script.py [args ...]\n       skimp run [options] -m module [args ...]"
TAKES_VALUE = ("--report", "--limit", "--show", "--budget", "--spill-dir", "--engine", "--outcome")
INTERRUPTED = 130  # 128 + SIGINT, as a shell has it


def add_to(commands: Any) -> None:
    """Declare the command and its options. The program is not among them: see `words.split`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME,
        usage=USAGE,
        help="run a Python program with torch resolving to skimp",
        description="Run a program as Python would, with torch resolving to skimp. When it has "
        "ended, say on stderr where its memory went.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--report",
        type=_destination,
        action="append",
        default=[],
        metavar="json|FILE",
        help="write the report as JSON to stderr, or to FILE: a page if it ends in .html, JSON if "
        "it ends in .json, PyTorch's memory snapshot if it ends in .snapshot or .pickle, "
        "speedscope's format if it ends in .speedscope.json, else text; may be given several times",
    )
    parser.add_argument(
        "--show",
        type=_sections,
        default=(),
        metavar="SECTION,...",
        help=f"what the report on stderr says beside its summary: {', '.join(SECTIONS)}, or all",
    )
    parser.add_argument("--quiet", action="store_true", help="no report on stderr")
    parser.add_argument(
        "--limit",
        type=_size,
        metavar="SIZE",
        help="memory that tensors may take, as in 2GiB; beyond it an op raises OutOfMemoryError",
    )
    parser.add_argument(
        "--budget",
        type=_size,
        metavar="SIZE",
        help="hold the program to so much memory, as in 300MiB, with the same results: bytes that "
        "are not in use go to a file, or are made again",
    )
    parser.add_argument("--no-spill", action="store_true", help="with --budget: write no file")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="with --budget: compare checksums of bytes that went and came back",
    )
    parser.add_argument(
        "--spill-dir", metavar="DIR", help="with --budget: where the file is (on a disk)"
    )
    parser.add_argument("--outcome", help=argparse.SUPPRESS)  # for `skimp fit`
    parser.add_argument(
        "--engine",
        choices=("skimp", "torch"),
        default="skimp",
        help="what the program runs on: skimp, or PyTorch itself, of which the report tells then",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="run it on both engines and show their peaks side by side",
    )
    parser.add_argument(
        "--full-traceback", action="store_true", help="keep skimp's own frames in tracebacks"
    )


def main(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the program that `words` name; the result is its exit code."""
    if not words or words == ["-m"]:
        return no_program(NAME, USAGE)
    if options.compare:
        return compare(options, words)
    guard.stand()
    mpi.tell_program()
    if mpi.launched() is not None:
        _write_whole_lines()
    try:
        engines.prepare(options)
    except (RuntimeError, OSError) as error:
        return refuse(NAME, str(error))
    if not options.full_traceback:
        sys.excepthook = tracebacks.print_without_our_frames
    name = " ".join(words[:2]) if words[0] == "-m" else words[0]
    wishes = Wishes(tuple(options.report), options.quiet, options.show)
    listener = None
    if not wishes.nothing():
        listener = Listener(engines.recording(options.engine, name), wishes)
    try:
        return _run(words)
    except BadProgram as error:
        if listener is not None:
            listener.stop()
        return refuse(NAME, str(error), error.code)


def _write_whole_lines() -> None:
    """Ranks share one stream: a line that `print` makes of several words is one write, which those
    of other ranks do not come between.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def _run(words: Sequence[str]) -> int:
    """Run it to its end. SystemExit goes on to the interpreter, which knows what its codes mean."""
    try:
        _load(words).run()
    except SystemExit as error:
        joining = sys.modules.get("skimp.distributed.joining")
        if error.code and joining is not None:  # the program is a rank, perhaps
            joining.leave()  # when the process ends, Python knows no more with which code
        raise
    except BadProgram:
        raise
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _load(words: Sequence[str]) -> Program:
    if words[0] == "-m":
        return load_module(words[1], words[2:])
    return load_file(words[0], words[1:])


def _destination(text: str) -> Destination:
    if text == "json":
        return "json"
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a directory")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {str(path.parent)!r}")
    return path.absolute()  # the program may change its directory


def _sections(text: str) -> tuple[str, ...]:
    names = tuple(SECTIONS) if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(
                f"there is no section {name!r}: {', '.join(SECTIONS)}, or all"
            )
    return names


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
