"""Measure, keep the results, write the pages: `python -m bench`."""

from __future__ import annotations

import argparse
import re
import sys

from bench import page
from bench.engines import ENGINES, ROOT
from bench.goals import DOCUMENTS, GOALS
from bench.results import FOLDER
from bench.run import begin, run
from bench.turns import SECONDS
from bench.verdict import rows
from bench.workloads import SMALL

QUICK_ENGINES = ("skimp", "torch", "torch+thp")
QUICK_SECONDS = 0.3  # for an engine's share of a workload's turns


def main() -> int:
    words = arguments()
    names = list(SMALL) + list(DOCUMENTS) if words.quick else list(GOALS)
    names = [name for name in names if words.only.search(name)]
    if not names:
        print("no workload has such a name; there are " + ", ".join(GOALS), file=sys.stderr)
        return 2
    engines = words.engines or (QUICK_ENGINES if words.quick else tuple(ENGINES))
    partial = words.quick or len(names) < len(GOALS) or words.shrink > 1
    results = begin(engines, words.shrink, QUICK_SECONDS if words.quick else SECONDS)
    folder = FOLDER / "partial" if partial else FOLDER
    rounds = words.rounds or (2 if words.quick else 3)
    done = run(results, names, rounds, growth=not partial, folder=folder)
    if not results.rounds:
        return 1
    print(page.times(results, rows(results)))
    print(page.memory(results, rows(results)))
    if not partial:
        page.write(results, ROOT, folder / results.file_name)
    return 0 if done else 130


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure skimp beside PyTorch and NumPy. A run of everything writes"
        " docs/performance.md and the README's table; a part of it only prints.",
    )
    parser.add_argument("--quick", action="store_true", help="small ops and the work of tutorials")
    parser.add_argument("--rounds", type=int, help="3, or 2 if quick")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX",
                        help="workloads whose name matches")  # fmt: skip
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), metavar="ENGINE",
                        help=", ".join(ENGINES))  # fmt: skip
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes, to try it out")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
