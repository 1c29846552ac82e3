"""From results to pages: docs/performance.md, its pictures, and the table of the README.

`python -m bench.page` writes them from the newest results, `python -m bench.page FILE` from others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import budget_table, charts, tables
from bench.engines import ROOT
from bench.goals import README
from bench.limits import SHARE
from bench.markdown import NONE, mib, ratio, seconds, table, yes
from bench.method import RATIOS, method
from bench.results import FOLDER, Results, load, newest
from bench.verdict import AGREEMENT, LARGE_MIB, NOISE_MIB, Row, rows, shares

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="results; the newest if left out")
    file = parser.parse_args().file or newest()
    write(load(file), ROOT, file)
    print(f"wrote docs/performance.md and the README's table from {file}")


def write(results: Results, root: Path, file: Path) -> None:
    """Write the pages below `root`; `file` is where the results are, which the page names."""
    docs = root / "docs"
    docs.mkdir(exist_ok=True)
    found = rows(results)
    charts.draw_all(results, found, README, docs / "pictures")
    charts.draw_budget(budget_table.kept().get("rows", []), docs / "pictures")
    (docs / "performance.md").write_text(page(results, found, docs / "pictures", file.name))
    readme = root / "README.md"
    readme.write_text(replaced(readme.read_text(), short(results, found, root)))


def replaced(text: str, table: str) -> str:
    """The text with what is between the two markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no table to replace: it needs {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table.strip()}\n{END}{after}"


# -- the README's table ---------------------------------------------------------------------------


def short(results: Results, found: Sequence[Row], root: Path) -> str:
    body = [
        [
            row.goal.title,
            seconds(row.seconds.get("skimp")),
            seconds(row.seconds.get("torch")),
            seconds(row.seconds.get("torch+thp")),
            ratio(row.of_default),
            ratio(row.of_best),
            mib(row.extra.get("skimp")),
            mib(row.extra.get("torch")),
        ]
        for row in found
        if row.name in README
    ]
    head = ["", "skimp", "PyTorch", "with huge pages", "time, of default", "of best",
            "MiB, skimp", "MiB, PyTorch"]  # fmt: skip
    where = f"{results.machine['processor']}, {results.machine['cores']} cores"
    return "\n\n".join(
        part
        for part in (
            *programs(results),
            f"Against PyTorch {results.versions['torch']} on {where}, 10 000 x 10 000 float32 where"
            " no size is given; MiB are extra memory at the peak:",
            table(head, body),
            picture("overview", "skimp's time relative to PyTorch's", root / "docs/pictures", root),
            "[Performance](docs/performance.md) has every workload, how memory and time grow, and"
            " how it is measured.",
        )
        if part
    )


def programs(results: Results) -> list[str]:
    if not results.has("programs"):
        return []
    return [
        f"{tables.programs_in_words(results)} A step of each, one after another on both engines:",
        tables.short_programs(results),
        tables.micro_in_words(results),
        "Large tensors are what skimp is made for.",
    ]


def picture(name: str, what: str, folder: Path, page: Path) -> str:
    """The light and the dark chart, as HTML that shows the one that suits; empty if not drawn."""
    if not (folder / f"{name}-light.svg").exists():
        return NONE
    path = folder.relative_to(page).as_posix()
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{path}/{name}-dark.svg">'
        f'<img alt="{what}" src="{path}/{name}-light.svg"></picture>'
    )


# -- docs/performance.md --------------------------------------------------------------------------


def page(results: Results, found: Sequence[Row], folder: Path, file: str) -> str:
    def chart(name: str, what: str) -> str:
        return picture(name, what, folder, folder.parent)

    parts = [
        "# Performance",
        "<!-- written by `make bench`; changes here are lost -->",
        opening(results, found, file),
        *tables.parts(results),
        "## Time" if not results.has("programs") else "## Large tensors and the smallest ops",
        "One call, the median; with `skimp / default` and the like the goal stands in brackets."
        f" {RATIOS[results.turns]}",
        times(results, found),
        chart("ratios", "skimp's time relative to PyTorch's, and the goals"),
        "## Memory",
        "MiB of resident memory at the peak of the calls, above that before them. `ledger` is what"
        f" skimp itself counted for the same calls; from {LARGE_MIB:.0f} MiB on the two must agree"
        f" within {AGREEMENT:.0%}. `share` is skimp's of PyTorch's, with the goal in brackets;"
        f" {NOISE_MIB:.0f} MiB, the size of a page, are not held against anybody.",
        memory(results, found),
        chart("memory", "extra memory at the peak"),
        *against_the_machine(results),
        *growth(results, chart),
        *between_processes(FOLDER / "ranks" / "distributed.json"),
        *budget_table.part(budget_table.kept(), chart("budget", "what a budget costs")),
        *failures(found),
        method(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def opening(results: Results, found: Sequence[Row], file: str) -> str:
    machine, versions = results.machine, results.versions
    met = sum(not row.missed and not row.errors.get("skimp") for row in found)
    small = "" if results.shrink == 1 else f"\n\n**Sizes are divided by {results.shrink}.**"
    rounds = f"{len(results.rounds)} round{'s' * (len(results.rounds) != 1)}"
    changed = " with changes" if results.changed else ""
    return (
        f"{met} of {len(found)} workloads meet their goals.{small}\n\n"
        f"- Commit {results.commit}{changed}, {results.started[:10]}, {rounds},"
        f" {results.seconds / 60:.0f} minutes; every figure is in"
        f" [bench/results/{file}](../bench/results/{file}).\n"
        f"- {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['system']}, huge pages on `{machine['huge_pages']}`;"
        f" the load average at the start was {machine['load']}.\n"
        f"- {', '.join(f'{name} {version}' for name, version in versions.items())}.\n\n"
        "To run it again: `make bench`, which takes about as long, or `make bench-quick`, a few"
        " minutes for programs, small ops and the work of tutorials. On a machine that does other"
        " things at the same time the figures mean little."
    )


def times(results: Results, found: Sequence[Row]) -> str:
    compiled = "torch.compile" in results.engines
    head = ["", *results.engines, "skimp / default", "/ best", *["/ compile"] * compiled, "met"]
    body = [
        [
            row.goal.title,
            *(seconds(row.seconds.get(e)) or failed(row, e) for e in results.engines),
            ratio(row.of_default, row.goal.of_default),
            ratio(row.of_best, row.goal.of_best),
            *[ratio(row.of_compiled, row.goal.of_compiled)] * compiled,
            "yes" if not row.missed else "**no**: " + ", ".join(row.missed),
        ]
        for row in found
    ]
    return table(head, body)


def failed(row: Row, engine: str) -> str:
    return "failed" if engine in row.errors else NONE


def memory(results: Results, found: Sequence[Row]) -> str:
    head = ["", *results.engines, "share", "ledger", "agree"]
    body = [
        [
            row.goal.title,
            *(mib(row.extra.get(e)) or failed(row, e) for e in results.engines),
            share(row),
            mib(row.ledger),
            yes(row.honest),
        ]
        for row in found
        if row.extra or row.errors
    ]
    return table(head, body)


def share(row: Row) -> str:
    """Of PyTorch's memory; where that is next to nothing there is only the goal."""
    if row.extra.get("torch", 0.0) < NOISE_MIB:
        return NONE if row.goal.memory is None else f"({row.goal.memory:g})"
    return ratio(row.of_memory, row.goal.memory)


def against_the_machine(results: Results) -> list[str]:
    found = shares(results)
    if not found or not results.limits:
        return []
    engines = [e for e in results.engines if any(e in s.shares for s in found)]
    body = [
        [
            row.goal.title,
            *(f"{s.shares[e]:.0%}" if e in s.shares else NONE for e in engines),
            f"{s.against}, {'yes' if s.met else '**no**'}",
        ]
        for s in found
        for row in rows(results)
        if row.name == s.name
    ]
    speeds = {
        kind: sorted(limit[kind] for limit in results.limits if kind in limit)
        for kind in ("copy", "update")
    }
    told = " and ".join(
        f"{values[len(values) // 2] / 1e9:.1f} GB/s ({kind})"
        for kind, values in speeds.items()
        if values
    )
    return [
        "## Against the machine",
        f"The bytes that the work must read and write, per second, as a share of what NumPy"
        f" reaches on all cores with a copy of 400 MB into warm memory, or an update in place:"
        f" {told} in the median round. The goal is {SHARE:.0%}.",
        table(["", *engines, "of, met"], body),
    ]


def growth(results: Results, chart: Callable[[str, str], str]) -> list[str]:
    if not any(results.growth.values()):
        return []
    return [
        "## How cost grows",
        "With the size, from 1 to 10^8 elements:",
        chart("size", "time by size"),
        "With the length of a graph: chains of multiplications with a gradient, forward, then"
        " backward. Time and memory per node should stay flat:",
        chart("nodes", "time and memory per node by length"),
        "With the number of threads:",
        chart("threads", "time by threads"),
    ]


def between_processes(kept: Path) -> list[str]:
    """What `python -m bench.distributed` kept last."""
    if not kept.exists():
        return []
    found = json.loads(kept.read_text())
    collectives, ddp = found["collectives"], found.get("ddp")
    told = [
        "## Between processes",
        "Collectives of `torch.distributed` between processes of one host, one thread each, beside"
        " PyTorch's gloo, in turns; the smallest median of the turns (`python -m bench.distributed"
        f" collectives`, {_when(collectives)}).",
        collectives["table"],
    ]
    if ddp:
        told += [
            "`DistributedDataParallel` on two ranks of one thread: training steps of the GPT above,"
            " alone on both ranks at once and with the gradients averaged, in turns; the lower"
            " quartile of the time until the last rank is done, and of the processor's time that a"
            f" rank takes (`python -m bench.distributed ddp`, {_when(ddp)}).",
            ddp["table"],
        ]
    return told


def _when(found: dict[str, Any]) -> str:
    return f"commit {found['commit']}, load average {found['load']} before it"


def failures(found: Sequence[Row]) -> list[str]:
    told = [
        f"- {row.goal.title}, {engine}: `{error}`"
        for row in found
        for engine, error in row.errors.items()
    ]
    return ["## What failed", "\n".join(told)] if told else []


if __name__ == "__main__":
    main()
