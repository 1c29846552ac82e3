"""From results to rows: medians, ratios within each turn, and whether the goals are met."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.goals import GOALS, Goal
from bench.limits import SHARE, TRAFFIC, traffic
from bench.results import Results
from bench.turns import Found

BEST = ("torch", "torch+thp")  # "best" is the better of these
NOISE_MIB = 2.0  # memory comes in pages of 2 MiB
LARGE_MIB = 64.0  # from here on the ledger and the system must agree
AGREEMENT = 0.05


@dataclass(frozen=True)
class Row:
    """One workload. None stands for what was not measured, or failed; `errors` says why."""

    name: str
    goal: Goal
    seconds: dict[str, float]  # by engine, medians over rounds
    extra: dict[str, float]  # MiB by engine, the most of any round
    ledger: float | None
    of_default: float | None
    of_best: float | None
    of_compiled: float | None
    of_memory: float | None  # torch's extra memory that skimp takes
    errors: dict[str, str]

    @property
    def missed(self) -> list[str]:
        """The parts of the goal that are not met."""
        goal = self.goal
        parts = {
            "default": exceeds(self.of_default, goal.of_default),
            "best": exceeds(self.of_best, goal.of_best),
            "compile": exceeds(self.of_compiled or 0.0, goal.of_compiled),  # where it was measured
            "memory": self._too_large(),
        }
        return [name for name, missed in parts.items() if missed]

    def _too_large(self) -> bool:
        wanted, extra = self.goal.memory, self.extra.get("skimp")
        if wanted is None or extra is None:
            return False
        return extra > wanted * self.extra.get("torch", 0.0) + NOISE_MIB

    @property
    def honest(self) -> bool | None:
        """Whether the ledger and the system agree; None where there is too little to compare."""
        return agree(self.extra.get("skimp"), self.ledger)


def exceeds(ratio: float | None, wanted: float | None) -> bool:
    """Whether the ratio, as it is shown, is above what is wanted. No figure is no success."""
    if wanted is None:
        return False
    return ratio is None or round(ratio, 2) > wanted


def agree(resident: float | None, ledger: float | None) -> bool | None:
    """Whether these MiB differ by at most 5% of the larger; None if neither is large."""
    if resident is None or ledger is None or max(resident, ledger) < LARGE_MIB:
        return None
    return abs(resident - ledger) <= AGREEMENT * max(resident, ledger)


def median(values: Iterable[float]) -> float | None:
    kept = list(values)
    return statistics.median(kept) if kept else None


def ratio(rounds: Sequence[dict[str, Found]], of: str, to: str) -> float | None:
    """The median over rounds of the share of an engine's time that another takes."""
    within = [ratio_within(found.get(of, {}), found.get(to, {})) for found in rounds]
    return median(share for share in within if share is not None)


def ratio_within(mine: Found, other: Found) -> float | None:
    """The median over turns of one engine's seconds divided by another's; None without both.

    Results that are older than turns have one figure for the round.
    """
    pairs = zip(
        mine.get("slices", [mine.get("seconds")]),
        other.get("slices", [other.get("seconds")]),
        strict=False,  # who fails has none
    )
    return median(a / b for a, b in pairs if a is not None and b is not None)


def of_better(ratios: Iterable[float | None]) -> float | None:
    """The ratio to the faster of others: the largest; None if one is missing.

    Of medians of the whole run. The faster in each turn would be the luckier: of two that are
    equal, the lesser of two noisy figures is below both.
    """
    kept = list(ratios)
    return None if None in kept else max(r for r in kept if r is not None)


def row(results: Results, name: str) -> Row:
    rounds = [found[name] for found in results.rounds if name in found]
    extra = largest(rounds, "extra_mib")
    mine, others = extra.get("skimp"), extra.get("torch")
    times = {engine: median(_of(rounds, engine, "seconds")) for engine in results.engines}
    return Row(
        name,
        GOALS[name],
        {engine: seconds for engine, seconds in times.items() if seconds is not None},
        extra,
        largest(rounds, "ledger_mib").get("skimp"),
        ratio(rounds, "skimp", "torch"),
        of_better(ratio(rounds, "skimp", engine) for engine in BEST),
        ratio(rounds, "skimp", "torch.compile"),
        mine / others if mine is not None and others else None,
        {e: f["error"] for found in rounds for e, f in found.items() if "error" in f},
    )


def rows(results: Results) -> list[Row]:
    return [row(results, name) for name in GOALS if name in results.workloads]


def largest(rounds: Sequence[dict[str, Found]], key: str) -> dict[str, float]:
    """The most of any round, by engine."""
    engines = {engine for found in rounds for engine in found}
    seen = {engine: _of(rounds, engine, key) for engine in engines}
    return {engine: max(values) for engine, values in seen.items() if values}


def _of(rounds: Sequence[dict[str, Found]], engine: str, key: str) -> list[float]:
    return [found[engine][key] for found in rounds if key in found.get(engine, {})]


@dataclass(frozen=True)
class Share:
    """How much of the machine's bandwidth an engine reaches on a workload, 1.0 being all of it."""

    name: str
    against: str  # "copy" or "update"
    shares: dict[str, float]  # by engine

    @property
    def met(self) -> bool:
        return round(self.shares.get("skimp", 0.0), 2) >= SHARE


def shares(results: Results) -> list[Share]:
    return [share(results, name) for name in TRAFFIC if name in results.workloads]


def share(results: Results, name: str) -> Share:
    against = TRAFFIC[name][1]
    found: dict[str, float] = {}
    for engine in results.engines:
        reached = median(
            traffic(name, results.shrink) / round_[name][engine]["seconds"] / limit[against]
            for round_, limit in zip(results.rounds, results.limits, strict=True)
            if "seconds" in round_[name].get(engine, {}) and against in limit
        )
        if reached is not None:
            found[engine] = reached
    return Share(name, against, found)
