"""`skimp run --compare`: the same program on skimp and on PyTorch, and what each of them took.

Each engine runs it twice: by itself, for its time and what it prints, and with a recording.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from skimp.cli.words import refuse
from skimp.lens import Report, load, show_comparison, to_html

ENGINES = ("torch", "skimp")


def compare(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run all, show the comparison on stderr; the exit code is the first one that is not 0."""
    if options.limit is not None or options.budget is not None:
        return refuse("run", "--compare has no limit and no budget; run skimp alone with them")
    pages = options.report
    if any(page == "json" or page.suffix != ".html" for page in pages):
        return refuse(
            "run", "--compare writes a page: --report FILE.html; for JSON run one --engine"
        )
    seconds, printed = [], []
    for engine in ENGINES:
        start = time.perf_counter()
        code, text = _plain(engine, words, echo=engine == "skimp")
        seconds.append(time.perf_counter() - start)
        printed.append(text)
        if code:
            return _failed(engine, code)
    with tempfile.TemporaryDirectory() as folder:
        reports = []
        for engine in ENGINES:
            path = Path(folder, f"{engine}.json")
            code = _recorded(engine, words, path)
            if code:
                return _failed(engine, code)
            reports.append(load(path))
    first, second = reports
    show_comparison(first, second, seconds, printed, sys.stderr)
    return max([_write(page, first, second) for page in pages], default=0)


def _plain(engine: str, words: Sequence[str], echo: bool) -> tuple[int, str]:
    """Run the program by itself; its exit code and what it printed, shown meanwhile if `echo`."""
    command = [sys.executable, *words]
    if engine == "skimp":
        command = [*_COMMAND, "--quiet", *words]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as child:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            if not echo:
                continue
            print(line, end="", flush=True)
    return child.returncode, "".join(lines)


def _recorded(engine: str, words: Sequence[str], path: Path) -> int:
    command = [*_COMMAND, "--quiet", "--engine", engine, "--report", str(path), *words]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


_COMMAND = (sys.executable, "-m", "skimp", "run")


def _write(page: Path, first: Report, second: Report) -> int:
    try:
        page.write_text(to_html(first, second), encoding="utf-8")
    except OSError as error:
        return refuse("run", f"can't write {str(page)!r}: {error.strerror}")
    return 0


def _failed(engine: str, code: int) -> int:
    refuse(
        "run", f"the program failed on {engine} with exit code {code}; there is nothing to compare"
    )
    return code if code > 0 else 1
