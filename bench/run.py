"""The rounds: every workload on every engine, in fresh processes that take turns."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import machine
from bench.catalogue import COMPARED, PARTS
from bench.engines import ENGINES, ROOT, available, child
from bench.growth import CURVES, GROWN
from bench.results import FOLDER, Results, Round, save
from bench.turns import SECONDS, Found, Turns, room_for

SHORT_BUDGET = 0.5  # seconds, for an engine's share of what is not a workload
IMPORTS = 5

# What processes leave alone, by condition, by settings of the environment that are "never".
WITHOUT = {"uncompiled": ("SKIMP_COMPILED",), "alone": ("SKIMP_ONEDNN", "SKIMP_COMPILED")}


def begin(names: Sequence[str], shrink: int = 1, budget: float = SECONDS) -> Results:
    """Results with nothing in them yet; says what engines are missing."""
    engines, left_out = available(names)
    for name, why in left_out.items():
        say(f"without {name}: {why}")
    commit, changed = machine.commit()
    return Results(
        commit,
        changed,
        datetime.now(UTC).isoformat(timespec="seconds"),
        machine.machine(),
        machine.versions(),
        [engine.name for engine in engines],
        left_out,
        shrink,
        budget,
    )


def run(
    results: Results,
    workloads: Sequence[str],
    rounds: int,
    growth: bool,
    folder: Path = FOLDER,
    conditions: Sequence[str] = (),
) -> bool:
    """Measure and save after every round; whether all was done, or Ctrl-C came before.

    Programs are measured again under `conditions`: with one thread, beside a busy process, without
    C's loops, without oneDNN as well.
    """
    start = time.monotonic()
    try:
        for number in range(rounds):
            limits = bandwidths(results.shrink)
            found = one_round(results, workloads, number)
            results.limits.append(limits)
            results.rounds.append(found)
            results.seconds = time.monotonic() - start
            save(results, folder)
        programs = [name for name in workloads if name in PARTS["programs"]]
        for condition in conditions:
            say(condition)
            results.conditions[condition] = [under(condition, results, programs)]
        if growth:
            results.growth = grown(results)
            results.imports = imports()
    except KeyboardInterrupt:
        say(f"\ninterrupted: {len(results.rounds)} finished rounds are kept")
        return False
    results.seconds = time.monotonic() - start
    save(results, folder)
    return True


def one_round(
    results: Results, workloads: Sequence[str], number: int, threads: int | None = None
) -> Round:
    engines = [ENGINES[name] for name in results.engines]
    round_: Round = {}
    with Turns(engines, results.shrink, threads) as turns:
        for name in workloads:
            say(f"round {number + 1}  {name:22}", end="")
            room = room_for(len(engines), results.shrink)
            if room < len(engines):
                say(f"  little memory: {room} engines at a time", end="")
            budget = min(results.budget, SHORT_BUDGET) if "/" in name else results.budget
            round_[name] = turns.measured(name, budget, room)
            for engine, found in round_[name].items():
                say(f"  {engine} {brief(found)}", end="")
            say("")
    return round_


def under(condition: str, results: Results, programs: Sequence[str]) -> Round:
    """A round of programs with one thread (`threads=1`), while a core is `busy`, `uncompiled`, or
    `alone`, with nothing but NumPy."""
    name, _, number = condition.partition("=")
    if name == "threads":
        return one_round(results, programs, 0, threads=int(number))
    if name in WITHOUT:
        with without(*WITHOUT[name]):
            return one_round(results, programs, 0)
    with busy():
        return one_round(results, programs, 0)


@contextlib.contextmanager
def without(*settings: str) -> Iterator[None]:
    """Processes that are started inside leave alone what these settings of the environment name."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(dict.fromkeys(settings, "never"))
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """Another process computes all the while, on a core that it doesn't need."""
    code = "from bench.process import die_with_parent\ndie_with_parent()\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as other:
        try:
            yield other
        finally:
            other.kill()


def imports() -> dict[str, Found]:
    """Seconds (the least) and MiB (the median) of importing each, in fresh processes in turn."""
    found: dict[str, list[Found]] = {module: [] for module in COMPARED}
    for _ in range(IMPORTS):
        for module, taken in found.items():
            taken += child("importing", module, engine=ENGINES[module])
    return {
        module: {
            "seconds": min(f["seconds"] for f in taken if "seconds" in f),
            **({"mib": statistics.median(f["mib"] for f in taken)} if "mib" in taken[0] else {}),
        }
        for module, taken in found.items()
        if not any("error" in f for f in taken)
    }


def bandwidths(shrink: int) -> dict[str, float]:
    lines = child("limits", f"--shrink={shrink}", engine=ENGINES["numpy"])
    found = lines[-1] if lines else {}
    return {key: value for key, value in found.items() if key != "error"}


def grown(results: Results) -> dict[str, list[Found]]:
    points: dict[str, list[Found]] = {name: [] for name in GROWN if name in results.engines}
    for curve in CURVES:
        say(f"growth   {curve:22}", end="")
        for name, kept in points.items():
            if curve.startswith("nodes") and ENGINES[name].environment:
                continue  # a setting for large memory says nothing about small nodes
            lines = child("growth", name, curve, f"--shrink={results.shrink}", engine=ENGINES[name])
            kept.extend(line for line in lines if "curve" in line)
            say(f"  {name} {len(lines)}", end="")
            for line in lines:
                if "error" in line:
                    say(f"  {line['error']}", end="")
        say("")
    return points


def brief(found: Found) -> str:
    return f"{found['seconds']:.3g} s" if "seconds" in found else found.get("error", "-")[:60]


def say(text: str, end: str = "\n") -> None:
    """Progress, on stderr at once."""
    print(text, end=end, file=sys.stderr, flush=True)
