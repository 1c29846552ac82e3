"""What no choice of who goes can be below: `python -m bench.budget_floor [--only NAMES]`.

At the moment at which a step holds the most, what lacks within a budget has to be away, and what is
away takes at least its own recipe, with nothing beneath it. So the recipes that cost least for
their bytes, the last one in part, are a bound, without a file.
"""

from __future__ import annotations

import argparse
import gc
import re
from typing import Any, Final

import skimp
from bench.budget import MIB
from bench.budget_programs import PROGRAMS
from bench.budget_worker import Facts, Running
from skimp._engine.budget import setting
from skimp._engine.budget.spending import Spending
from skimp._engine.memory.ledger import host

SHARES: Final = (0.7, 0.5, 0.3)
STEPS: Final = 3  # of which the last one is looked at
FINER: Final = 1.005  # by which more has to be held before all is looked at again


class Noting(Spending):
    """A budget that nothing reaches. It notes all steps, and keeps what there was when the most
    was held: bytes and seconds by recipe.
    """

    most = 0
    looks = False
    there: tuple[tuple[int, float], ...] = ()

    def after_backward(self) -> None:
        """Nothing is expected, so that recipes are noted."""

    def receive(self, nbytes: int, owner: Any) -> None:
        super().receive(nbytes, owner)
        now = host.allocated + nbytes
        if self.looks and now > FINER * self.most:
            self.most, self.there = now, self._there()

    def _there(self) -> tuple[tuple[int, float], ...]:
        found: dict[int, tuple[int, float]] = {}
        for ref in list(self.known.values()):
            s = ref()
            if s is not None and s.block is not None and s.recipe is not None and not s.exported:
                recipe = s.recipe[0]
                found[id(recipe)] = found.get(id(recipe), (0, 0.0))[0] + len(s), recipe.seconds
        return tuple(found.values())


def bound(there: tuple[tuple[int, float], ...], lacking: float) -> float | None:
    """Seconds that so many bytes take at least; None: there are not as many with a recipe."""
    seconds = 0.0
    for nbytes, cost in sorted(there, key=lambda one: one[1] / one[0]):
        part = min(1.0, max(lacking, 0.0) / nbytes)
        seconds += part * cost
        lacking -= part * nbytes
    return seconds if lacking <= 0 else None


def bounds(name: str, free: Facts) -> list[float | None]:
    """Of each share of what the program holds."""
    gc.collect()
    skimp.memory.empty_cache()
    skimp.manual_seed(0)
    base = host.allocated
    budget = Noting(base + 4 * free.peak, spills=False)
    setting.obey(budget)
    try:
        trained = PROGRAMS[name](skimp)
        for step in range(STEPS):
            budget.looks = step == STEPS - 1
            trained.step()
    finally:
        setting.obey(None)
    above = budget.most - base - free.floor
    return [bound(budget.there, above - share * (free.peak - free.floor)) for share in SHARES]


def plain(name: str) -> tuple[float, Facts]:
    """The least seconds of a step without a budget, and what is held."""
    running = Running(name)
    seconds = min([running.step()[1] for _ in range(STEPS)])
    return seconds, running.facts()


def main() -> None:
    """Print the bounds, and how long a step takes without a budget."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget_floor", description=__doc__)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="names, as a regex")
    options = parser.parse_args()
    for name in [name for name in PROGRAMS if options.only.search(name)]:
        seconds, free = plain(name)
        told = [
            f"{share}: " + ("not by recipes alone" if found is None else f"{1e3 * found:.1f} ms")
            for share, found in zip(SHARES, bounds(name, free), strict=True)
        ]
        step, peak = 1e3 * seconds, free.peak / MIB
        print(f"{name}, a step of {step:.0f} ms, {peak:.0f} MiB:", ", ".join(told), flush=True)


if __name__ == "__main__":
    main()
