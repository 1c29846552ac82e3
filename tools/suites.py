"""Runs other libraries' test suites on PyTorch and on skimp, and tells what fails on skimp alone,
by cause: the error's class, its words without numbers, and skimp's innermost line.

    python tools/suites.py ~/einops ~/metrics/tests/text [--timeout 600] [--json FILE]

A folder is a library's checkout or its tests; what lies beside it (`src`, the checkout itself) is
found before what is installed. Needs PyTorch and pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENGINES = ("torch", "skimp")
_HERE = Path(__file__).resolve().parent
_CHILD = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
_ON_SKIMP = f"from skimp._compat import install; install(); {_CHILD}"


# -- in the process that runs the tests: a plugin of pytest ---------------------------------------


class Recorder:
    """Notes how each test ended; a failure by its cause."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, dict[str, str]] = {}

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is not None and not _is_skip(call.excinfo):
            self.found[item.nodeid] = {"outcome": "failed", **cause(call.excinfo)}
        elif call.when == "call" and call.excinfo is None:
            self.found.setdefault(item.nodeid, {"outcome": "passed"})

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        """Files that can't be imported."""
        if not hasattr(node, "function") and call.excinfo is not None:
            self.found[node.nodeid] = {"outcome": "failed", **cause(call.excinfo)}

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps(self.found))


def _is_skip(info: Any) -> bool:
    return type(info.value).__name__ in ("Skipped", "XFailed", "Exit")


def cause(info: Any) -> dict[str, str]:
    """An error's class and words, and where it comes from: skimp's innermost line, else the
    program's.
    """
    error = info.value
    deepest = error
    while type(deepest).__name__ == "CollectError" and deepest.__cause__ is not None:
        deepest = deepest.__cause__
    places = [(str(e.path), e.name, e.lineno + 1) for e in info.traceback]
    ours = [p for p in places if "/skimp/" in p[0] or p[0].startswith("<skimp")]
    path, name, line = (ours or places or [("?", "?", 0)])[-1]
    short = re.sub(r".*/skimp/", "skimp/", path) if ours else Path(path).name
    return {
        "error": type(deepest).__name__,
        "words": str(deepest)[:2000],
        "where": f"{short}:{line} in {name}" if ours else f"{short} in {name}",
    }


def pytest_configure(config: Any) -> None:
    """Where pytest is told to load this file, it records."""
    path = os.environ.get("SUITES_RECORD")
    if path is not None:
        config.pluginmanager.register(Recorder(Path(path)))


# -- in the process that compares -----------------------------------------------------------------


def root_of(folder: Path) -> Path:
    """The checkout that a folder of tests belongs to."""
    for place in (folder, *folder.parents):
        if any((place / n).exists() for n in ("pyproject.toml", "setup.py", "setup.cfg", ".git")):
            return place
    return folder if folder.is_dir() else folder.parent


def run(folder: Path, engine: str, timeout: float) -> dict[str, dict[str, str]]:
    """How each test of a folder ends on PyTorch or on skimp."""
    root = root_of(folder)
    with tempfile.TemporaryDirectory() as scratch:
        record = Path(scratch) / "record.json"
        paths = [str(p) for p in (root / "src", root, _HERE, _HERE.parent / "src")]
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST")},
            "SUITES_RECORD": str(record),
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        }
        options = ["-q", "-p", "suites", "-p", "no:cacheprovider", "-W", "default", "--tb=no"]
        options.append("--continue-on-collection-errors")
        child = [sys.executable, "-c", _ON_SKIMP if engine == "skimp" else _CHILD]
        try:
            done = subprocess.run(
                [*child, *options, "--rootdir", str(root), "-o", "addopts=", str(folder)],
                env=env, cwd=root, timeout=timeout, capture_output=True, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"": {"outcome": "failed", "error": "Timeout", "words": "", "where": engine}}
        if not record.exists():
            words = (done.stderr or done.stdout)[-600:]
            return {"": {"outcome": "failed", "error": "Crash", "words": words, "where": engine}}
        found: dict[str, dict[str, str]] = json.loads(record.read_text())
        return found


Outcomes = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Cause:
    """What makes tests fail on skimp alone, and which."""

    error: str
    words: str
    where: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.tests):5}  {self.error}: {self.words}\n       {self.where}; {self.tests[0]}"
        )


def without_numbers(words: str) -> str:
    """The first line of an error's words, with what differs from test to test left out."""
    line = words.strip().partition("\n")[0]
    return re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?", "N", line)[:160]


def causes(theirs: Outcomes, ours: Outcomes) -> list[Cause]:
    """The causes of what fails on skimp alone, the most frequent first."""
    found = defaultdict(list)
    for test, end in ours.items():
        alone = theirs.get(test, {}).get("outcome") != "failed"
        if end["outcome"] == "failed" and alone:
            found[end["error"], without_numbers(end["words"]), end["where"]].append(test)
    made = [Cause(*key, tuple(tests)) for key, tests in found.items()]
    return sorted(made, key=lambda c: -len(c.tests))


def report(folder: Path, theirs: Outcomes, ours: Outcomes) -> Iterator[str]:
    """What a person reads about one folder."""
    counts = {
        engine: sum(end["outcome"] == "passed" for end in ends.values())
        for engine, ends in zip(ENGINES, (theirs, ours), strict=True)
    }
    both = sum(
        end["outcome"] == "failed" and theirs.get(test, {}).get("outcome") == "failed"
        for test, end in ours.items()
    )
    better = sum(
        end["outcome"] == "passed" and theirs.get(test, {}).get("outcome") == "failed"
        for test, end in ours.items()
    )
    for engine, ends in zip(ENGINES, (theirs, ours), strict=True):
        if "" in ends:  # nothing of what follows was compared
            yield f"{folder}: {ends['']['error']} on {engine}. {ends['']['words']}".rstrip()
    found = causes(theirs, ours)
    alone = sum(len(c.tests) for c in found)
    yield (
        f"{folder}: {counts['torch']} pass on PyTorch, {counts['skimp']} on skimp; "
        f"{alone} fail on skimp alone, by {len(found)} causes, {both} on both, {better} on PyTorch "
        "alone"
    )
    yield from map(str, found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--timeout", type=float, default=1800, help="seconds for a suite on an engine"
    )
    parser.add_argument("--json", type=Path, help="write what was found to this file too")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in options.folders:
        folder = folder.resolve()
        ends = [run(folder, engine, options.timeout) for engine in ENGINES]
        print(*report(folder, *ends), sep="\n", flush=True)
        found[str(folder)] = [vars(c) for c in causes(*ends)]
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
