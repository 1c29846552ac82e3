"""`skimp fit`: the smallest budget in which a program runs, and what smaller budgets cost it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from skimp._engine.budget.statistics import Outcome
from skimp._engine.memory.sizes import readable
from skimp.cli.words import no_program, refuse

NAME = "fit"
USAGE = "skimp fit [options] script.py [args ...]\n       skimp fit [options] -m module [args ...]"
TAKES_VALUE = ("--runs",)
SHARES: Final = (0.85, 0.7, 0.55, 0.4)  # of the peak that are tried
WIDTH: Final = 40  # characters of the longest bar
LEAST: Final = 1 << 16  # bytes between budgets that are tried
LONGEST: Final = 10  # times as long as without a budget: a run that takes longer is stopped
PATIENCE: Final = 5.0  # seconds that any run may take beyond that
MEMORY_ERROR: Final = "OutOfMemoryError"


class Run(NamedTuple):
    """A run within a budget; no outcome: an op needs more, or it was stopped."""

    budget: int
    outcome: Outcome | None
    stopped: bool = False


Try = Callable[[int], Run]


def add_to(commands: Any) -> None:
    """Declare the command and its options. The program is not among them: see `words.split`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME,
        usage=USAGE,
        help="find the smallest budget for a program, and what budgets cost",
        description="Run a program without a budget and within several, find the smallest in "
        "which it runs, and show how long each takes. Give it few steps: it runs as a whole.",
        allow_abbrev=False,
    )
    parser.add_argument("--runs", type=int, default=8, help="how many runs at most (8)")
    parser.add_argument("--no-spill", action="store_true", help="write no file")


def main(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Try the budgets and print what they cost; the exit code is 0 unless the program fails."""
    if not words:
        return no_program(NAME, USAGE)

    try:
        began = time.monotonic()
        free = run(words, None, options.no_spill)
        assert free is not None
        longest = LONGEST * (time.monotonic() - began) + PATIENCE

        def attempt(budget: int) -> Run:
            try:
                return Run(budget, run(words, budget, options.no_spill, longest))
            except subprocess.TimeoutExpired:
                return Run(budget, None, stopped=True)

        runs = search(free.peak, attempt, options.runs)
    except Failed as error:
        return refuse(NAME, str(error), 1)
    print(drawn(free, runs))
    return 0


class Failed(Exception):
    """The program fails, with or without a budget."""


def run(
    words: Sequence[str], budget: int | None, no_spill: bool, longest: float | None = None
) -> Outcome | None:
    """A run of the program; None where memory is refused. Failed: it fails otherwise.
    TimeoutExpired: it took more than `longest` seconds, and was killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "outcome.json"
        options = ["--quiet", "--outcome", str(told)]
        if budget is not None:
            options += ["--budget", str(budget), *(["--no-spill"] if no_spill else [])]
        command = [sys.executable, "-m", "skimp", "run", *options, *words]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=longest
        )
        if done.returncode == 0:
            return Outcome(**json.loads(told.read_text()))
        if budget is not None and MEMORY_ERROR in done.stderr:
            return None
        raise Failed(f"the program ends with {done.returncode}\n{done.stderr[-2000:]}")


def search(peak: int, attempt: Try, most: int) -> list[Run]:
    """Budgets at parts of the peak, then ever closer to the smallest one, `most` in all."""
    runs: list[Run] = []
    too_small = 0
    for share in SHARES[:most]:
        budget = int(peak * share)
        runs.append(attempt(budget))
        if runs[-1].outcome is None:
            too_small = budget
            break
    while len(runs) < most:
        fits = min([one.budget for one in runs if one.outcome is not None], default=peak)
        if fits - too_small <= max(fits // 20, LEAST):
            break
        budget = (fits + too_small) // 2
        runs.append(attempt(budget))
        if runs[-1].outcome is None:
            too_small = budget
    return sorted(runs, key=lambda one: -one.budget)


def drawn(free: Outcome, runs: Sequence[Run]) -> str:
    """The budgets and the time that they take, with bars."""
    lines = [
        f"Without a budget: at most {readable(free.peak)}, {free.seconds:.1f} s of processor time",
        "",
        f"{'budget':>12} {'of peak':>8} {'time':>6}  {'again':>11} {'read':>11}",
    ]
    slowest = max([_slowdown(free, one) for one in runs if one.outcome is not None], default=1.0)
    for one in runs:
        name = f"{readable(one.budget):>12} {one.budget / max(free.peak, 1):>8.0%}"
        if one.outcome is None:
            why = f"more than {LONGEST} times as long" if one.stopped else "an op needs more"
            lines.append(f"{name}  {why}")
            continue
        times = _slowdown(free, one)
        bar = "█" * max(1, round(WIDTH * times / slowest))
        again, read = readable(one.outcome.rematerialized), readable(one.outcome.read)
        lines.append(f"{name} {times:>5.2f}x  {again:>11} {read:>11}  {bar}")
    fitting = [one.budget for one in runs if one.outcome is not None]
    if fitting:
        lines += ["", f"The smallest budget that was found to fit: {readable(min(fitting))}"]
    return "\n".join(lines)


def _slowdown(free: Outcome, one: Run) -> float:
    assert one.outcome is not None
    return one.outcome.seconds / max(free.seconds, 1e-3)
