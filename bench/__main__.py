"""Measure, keep the results, write the pages: `python -m bench`."""

from __future__ import annotations

import argparse
import re
import sys

from bench import page, tables
from bench.catalogue import ALL, COMPARED, PARTS
from bench.engines import ENGINES, ROOT
from bench.goals import DOCUMENTS
from bench.results import FOLDER, Results
from bench.run import begin, imports, run
from bench.turns import SECONDS
from bench.verdict import rows
from bench.workloads import SMALL

QUICK_ENGINES = ("skimp", "torch", "torch+thp")
QUICK_SECONDS = 0.3  # for an engine's share of a workload's turns
CONDITIONS = tuple(tables.CONDITIONS)


def main() -> int:
    words = arguments()
    if words.imports:
        found = begin(COMPARED)
        found.imports = imports()
        print(tables.imports(found))
        return 0
    names = [name for name in wanted(words) if words.only.search(name)]
    if not names:
        print("no work has such a name; there is " + ", ".join(ALL), file=sys.stderr)
        return 2
    partial = words.quick or len(names) < len(ALL) or words.shrink > 1
    engines = words.engines or (engines_for(words) if partial else tuple(ENGINES))
    results = begin(engines, words.shrink, QUICK_SECONDS if words.quick else SECONDS)
    folder = FOLDER / "partial" if partial else FOLDER
    rounds = words.rounds or (1 if words.quick else 2)
    conditions = words.under or (() if partial else CONDITIONS)
    done = run(results, names, rounds, not partial, folder, conditions)
    if not results.rounds:
        return 1
    print(shown(results))
    if not partial:
        page.write(results, ROOT, folder / results.file_name)
    return 0 if done else 130


def wanted(words: argparse.Namespace) -> list[str]:
    """The names of the parts that were asked for; of everything if of none."""
    parts = [part for part in PARTS if getattr(words, part)]
    if words.quick:
        return [*PARTS["programs"], *PARTS["micro"], *SMALL, *DOCUMENTS]
    return [name for part in parts or PARTS for name in PARTS[part]]


def engines_for(words: argparse.Namespace) -> tuple[str, ...]:
    if words.quick:
        return QUICK_ENGINES
    if words.micro:
        return (*COMPARED, "numpy")  # what small ops cost beyond its calls
    return COMPARED if any(getattr(words, part) for part in PARTS) else tuple(ENGINES)


def shown(results: Results) -> str:
    told = tables.parts(results)
    found = rows(results)
    if found:
        told += [page.times(results, found), page.memory(results, found)]
    return "\n\n".join(part for part in told if part)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure skimp beside PyTorch and NumPy. A run of everything writes"
        " docs/performance.md and the README's table; a part of it only prints.",
    )
    parser.add_argument("--quick", action="store_true",
                        help="programs, small ops and the work of tutorials")  # fmt: skip
    parser.add_argument("--programs", action="store_true", help="training steps and the like")
    parser.add_argument("--micro", action="store_true", help="small ops, a hundred of them")
    parser.add_argument("--sizes", action="store_true", help="five ops on 1 to 10^8 elements")
    parser.add_argument("--workloads", action="store_true", help="large tensors and nine small ops")
    parser.add_argument("--imports", action="store_true", help="what importing costs")
    parser.add_argument("--under", nargs="+", choices=CONDITIONS, metavar="CONDITION",
                        help="measure programs also under: " + ", ".join(CONDITIONS))  # fmt: skip
    parser.add_argument("--rounds", type=int, help="2, or 1 if quick")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX",
                        help="work whose name matches")  # fmt: skip
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), metavar="ENGINE",
                        help=", ".join(ENGINES))  # fmt: skip
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes, to try it out")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
