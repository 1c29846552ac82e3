"""The tables of programs, small ops, sizes and imports, from what was measured of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.catalogue import PARTS, SIZED, SIZES
from bench.markdown import NONE, bold, mib, ratio, seconds, table
from bench.micro import ROWS
from bench.overhead_table import section as overhead
from bench.programs import TITLES
from bench.results import Results, Round
from bench.turns import Found
from bench.verdict import NOISE_MIB, largest, median, ratio as ratio_of

OF_PROGRAM, OF_PROGRAMS, OF_MEMORY = 1.2, 0.8, 0.4  # goals: of each, of the geometric means
OF_MICRO, OF_MICROS = 2.5, 1.0
EQUAL = 1e-4  # losses, relative
CONDITIONS = {
    "threads=1": "one thread",
    "busy": "a busy core",
    "uncompiled": "loops not compiled",
    "alone": "NumPy alone",
}


def mean(ratios: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are known."""
    kept = [math.log(r) for r in ratios if r]
    return math.exp(statistics.fmean(kept)) if kept else None


@dataclass(frozen=True)
class Compared:
    """One piece of work on skimp and PyTorch; None where it was not measured, or failed."""

    name: str
    skimp: float | None
    torch: float | None
    ratio: float | None
    cpu: float | None  # processors' time, as a share of PyTorch's
    extra: dict[str, float]  # MiB
    losses: float | None  # the largest relative difference
    error: str

    @property
    def memory(self) -> float | None:
        """skimp's share of PyTorch's memory, where that is more than a page."""
        other = self.extra.get("torch", 0.0)
        if other < NOISE_MIB or "skimp" not in self.extra:
            return None
        return max(self.extra["skimp"], 0.01) / other


def compared(rounds: Sequence[Round], name: str) -> Compared:
    kept = [round_[name] for round_ in rounds if name in round_]

    def middle(engine: str, key: str = "seconds") -> float | None:
        return median(found[engine][key] for found in kept if key in found.get(engine, {}))

    share = ratio_of(kept, "skimp", "torch")
    cpus = (middle("skimp", "cpu"), middle("torch", "cpu"))
    errors = [f"{e}: {f['error']}" for found in kept for e, f in found.items() if "error" in f]
    return Compared(
        name,
        middle("skimp"),
        middle("torch"),
        share,
        share * cpus[0] / cpus[1] if share and cpus[0] and cpus[1] else None,
        largest(kept, "extra_mib"),
        max((d for found in kept for d in differences(found)), default=None),
        "; ".join(dict.fromkeys(errors)),
    )


def differences(found: dict[str, Found]) -> list[float]:
    """The relative differences of the first losses."""
    mine, theirs = (found.get(e, {}).get("losses", []) for e in ("skimp", "torch"))
    return [abs(a - b) / max(abs(b), 1e-12) for a, b in zip(mine, theirs, strict=False)]


def of_part(results: Results, part: str) -> list[Compared]:
    return [compared(results.rounds, n) for n in PARTS[part] if n in results.workloads]


# -- programs -------------------------------------------------------------------------------------


def programs(results: Results) -> str:
    found = of_part(results, "programs")
    if not found:
        return NONE
    others = {
        c: {row.name: compared(results.conditions[c], row.name) for row in found}
        for c in CONDITIONS
        if c in results.conditions
    }
    head = ["", "skimp", "torch", "skimp / torch", "CPU time", *(CONDITIONS[c] for c in others),
            "MiB, skimp", "MiB, torch", "losses differ by"]  # fmt: skip
    body = [
        [
            TITLES[row.name.partition("/")[2]],
            seconds(row.skimp) or row.error,
            seconds(row.torch),
            bold(ratio(row.ratio), row.ratio is None or round(row.ratio, 2) > OF_PROGRAM),
            ratio(row.cpu),
            *(ratio(other[row.name].ratio) for other in others.values()),
            mib(row.extra.get("skimp")),
            mib(row.extra.get("torch")),
            difference(row.losses),
        ]
        for row in found
    ]
    last = [
        "**geometric mean**", NONE, NONE, ratio(mean(r.ratio for r in found), OF_PROGRAMS),
        ratio(mean(r.cpu for r in found)),
        *(ratio(mean(r.ratio for r in other.values())) for other in others.values()),
        NONE, "share " + ratio(mean(r.memory for r in found), OF_MEMORY), NONE,
    ]  # fmt: skip
    return table(head, [*body, last])


def difference(losses: float | None) -> str:
    if losses is None:
        return NONE
    return bold(f"{losses:.0e}" if losses else "0", losses > EQUAL)


def programs_in_words(results: Results) -> str:
    found = of_part(results, "programs")
    shares = [row.ratio for row in found if row.ratio]
    if not shares:
        return NONE
    level, within = (sum(round(s, 2) <= limit for s in shares) for limit in (1.0, OF_PROGRAM))
    return (
        f"{len(shares)} programs take {ratio(mean(shares))} of PyTorch's time and"
        f" {ratio(mean(r.memory for r in found))} of its memory (geometric means);"
        f" {level} are at or under PyTorch's time, {within} within {OF_PROGRAM} of it."
        + _alone(results, [row.name for row in found])
    )


def _alone(results: Results, names: list[str]) -> str:
    """What they take where less than all is at hand, in words."""
    told = []
    for condition, words in (("uncompiled", "without those"), ("alone", "on NumPy alone")):
        if condition in results.conditions:
            found = [compared(results.conditions[condition], name).ratio for name in names]
            told.append(f"{words} {ratio(mean(found))}")
    if not told:
        return ""
    return (
        " Convolutions, products and GELU are oneDNN's (`skimp[onednn]`), dropout, norms,"
        f" optimizers and other loops are C's (`skimp compile`): {', '.join(told)}."
    )


def slowed(results: Results) -> str:
    """What a busy core costs each of the two, in words."""
    told = []
    for engine in ("skimp", "torch"):
        losses = []
        for name in PARTS["programs"]:
            quiet, busy = (
                median(r[name][engine]["seconds"] for r in rounds
                       if "seconds" in r.get(name, {}).get(engine, {}))
                for rounds in (results.rounds, results.conditions.get("busy", []))
            )  # fmt: skip
            losses.append(busy / quiet if busy and quiet else None)
        told.append(f"{engine} {ratio(mean(losses))}")
    return "While another process keeps a core busy programs take longer: " + ", ".join(told) + "."


def short_programs(results: Results) -> str:
    """The README's table."""
    found = of_part(results, "programs")
    body = [
        [
            TITLES[row.name.partition("/")[2]],
            seconds(row.skimp),
            seconds(row.torch),
            ratio(row.ratio),
            mib(row.extra.get("skimp")),
            mib(row.extra.get("torch")),
        ]
        for row in found
    ]
    head = ["", "skimp", "PyTorch", "time", "MiB, skimp", "MiB, PyTorch"]
    return table(head, body) if body else NONE


# -- small ops, sizes, imports --------------------------------------------------------------------


def micro(results: Results) -> str:
    found = of_part(results, "micro")
    body = [
        [
            f"`{ROWS[row.name.partition('/')[2]]}`" + what(row.name),
            seconds(row.skimp) or row.error,
            seconds(row.torch),
            bold(ratio(row.ratio), row.ratio is None or round(row.ratio, 2) > OF_MICRO),
        ]
        for row in found
    ]
    return table(["", "skimp", "torch", "skimp / torch"], body) if body else NONE


def what(name: str) -> str:
    _, comma, how = name.partition(", ")
    return f"{comma}{how}" if how == "recorded" else NONE


def micro_in_words(results: Results) -> str:
    shares = [row.ratio for row in of_part(results, "micro") if row.ratio]
    if not shares:
        return NONE
    level, far = sum(s <= 1 for s in shares), sum(round(s, 2) > OF_MICRO for s in shares)
    return (
        f"{len(shares)} small ops: geometric mean {ratio(mean(shares), OF_MICROS)} of PyTorch's"
        f" time, {level} at or under it, {far} above {OF_MICRO} times."
    )


def sizes(results: Results) -> str:
    found = {row.name: row for row in of_part(results, "sizes")}
    body = []
    for work in SIZED:
        rows = [found.get(f"size/{work}/{n}") for n in SIZES]
        if any(rows):
            body.append([
                f"`{work}`",
                *(bold(ratio(r.ratio), (r.ratio or 0) > 1.004) if r else NONE for r in rows),
            ])  # fmt: skip
    return table(["", *(f"{n:.0e}".replace("e+0", "e") for n in SIZES)], body) if body else NONE


def imports(results: Results) -> str:
    body = [
        [f"`import {name}`", seconds(found.get("seconds")), mib(found.get("mib"))]
        for name, found in results.imports.items()
    ]
    return table(["", "time", "MiB"], body) if body else NONE


def parts(results: Results) -> list[str]:
    """What docs/performance.md says of all these."""
    told: list[str] = []
    if programs(results):
        told += [
            "## Programs",
            f"{programs_in_words(results)} The goals are {OF_PROGRAMS} (no program above"
            f" {OF_PROGRAM}) and {OF_MEMORY}. They are in [bench/programs](../bench/programs):"
            " a step each, of training, an episode, an epoch; memory is that above the set-up."
            f" Losses of the first steps are equal within {EQUAL:g} unless the difference is bold.",
            programs(results),
            slowed(results) if "busy" in results.conditions else NONE,
            "Convolutions, products and GELU are oneDNN's, by the extra `skimp[onednn]`; what is in"
            " `_kernels/loops` is C's, by `skimp compile`. The last columns are without these"
            " loops, and without either.",
        ]
    if micro(results):
        told += ["## Small ops", micro_in_words(results), micro(results), *overhead(results)]
    if sizes(results):
        told += [
            "## Sizes",
            "skimp's time as a share of PyTorch's, by the number of elements:",
            sizes(results),
        ]
    if imports(results):
        told += ["## Import", imports(results)]
    return told
