"""Which storage's bytes go: the one that costs least to have back, for what it gives and how long
nobody has wanted it (Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021).

    cost to bring back / (bytes x time since it was used)

A search looks at a sample, so that it does not grow with the program.
"""

from __future__ import annotations

import math
import random
import weakref
from bisect import insort
from collections.abc import Collection
from time import perf_counter
from typing import Final

from skimp._engine.budget import recipes
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.spill import rates
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.ledger import KEPT

SAMPLE: Final = 32  # candidates that a search looks at
BATCH: Final = 8  # of them that may go before there is another search
RECENT: Final = 32  # evictions for which the price of a recipe is taken to be the same
LEAST: Final = 4 << 10  # bytes of a storage, or more in large budgets: what has less stays
CALL: Final = 4e-5  # seconds for which going and coming back keep Python, whatever the size

Known = dict[int, weakref.ref[Evictable]]
_random = random.Random(0)  # of its own: programs seed the other


def goes_from(budget: int) -> int:
    """Bytes of a storage from which a budget takes them away."""
    return min(max(budget >> 12, LEAST), POOLED)


def choose(
    known: Known, tried: Collection[int], can_spill: bool, period: int | None, lacking: int
) -> list[Evictable]:
    """The storages to evict next, the first one last, among those that are `known` and not `tried`,
    no more than give the `lacking` bytes; none: there is none. `period`: what can't go in a plan
    goes last, as what is known by no place in it does, and what can be had by a recipe of before
    this period alone.

    What has died is forgotten on the way. What a storage costs at least is looked up, what it costs
    with all beneath it only as long as it may be one of the cheapest.
    """
    keys = list(known)
    if period is not None:
        in_period = [
            s
            for s in _resident(known, tried, keys)
            if can_spill or (s.recipe is not None and s.recipe[0].noted[0] == period)
        ]
        for least in (KEPT, POOLED):
            first = [s for s in in_period if s.nbytes >= least]
            step = max(len(first) // SAMPLE, 1)
            for some in (first[_random.randrange(step) :: step], first):
                if found := _best(some, can_spill, lacking):
                    return found
    step = len(keys) // SAMPLE
    if step > 1:
        sampled = keys[_random.randrange(step) :: step]
        if found := _best(_resident(known, tried, sampled), can_spill, lacking):
            return found
    return _best(_resident(known, tried, keys), can_spill, lacking, last=True)


def _best(
    candidates: list[Evictable], can_spill: bool, lacking: int, last: bool = False
) -> list[Evictable]:
    now = perf_counter()
    lowest = []
    for s in candidates:
        least = _least(s, can_spill)
        if least is not None:
            gain = s.nbytes * (now - s.used + 1e-6)
            lowest.append(((least + CALL) / gain, id(s), gain, s))
    lowest.sort()
    return _cheapest(lowest, can_spill, lacking, last)


def _cheapest(
    lowest: list[tuple[float, int, float, Evictable]], can_spill: bool, lacking: int, last: bool
) -> list[Evictable]:
    best: list[tuple[float, int, Evictable]] = []
    gives = 0  # bytes
    for low, key, gain, s in lowest:
        if (gives >= lacking or len(best) == BATCH) and low >= best[-1][0]:
            break
        cost = cost_of(s, can_spill)
        if cost is None or (cost == math.inf and not last):
            continue
        insort(best, ((cost + CALL) / gain, key, s))
        gives += s.nbytes
        while len(best) > BATCH or (len(best) > 1 and gives - best[-1][2].nbytes >= lacking):
            gives -= best.pop()[2].nbytes
    return [s for _, _, s in reversed(best)]


def _least(s: Evictable, can_spill: bool) -> float | None:
    """Seconds that having the bytes back takes at least; None: they would be lost."""
    known = s.recipe  # another thread may write to the bytes, which then have none
    makes = None if known is None or s.held else known[0]
    if makes is not None and makes.is_due(s):
        return 0.0
    making: float | None = None if makes is None else makes.seconds
    if can_spill or s.place is not None:
        spilling = spilling_of(s)
        return spilling if making is None else min(spilling, making)
    return making


def _resident(known: Known, tried: Collection[int], keys: list[int]) -> list[Evictable]:
    """Those whose bytes are here."""
    found = []
    for key in keys:
        ref = known.get(key)
        s = None if ref is None else ref()
        if s is None:
            known.pop(key, None)
        elif s.block is not None and s.nbytes > 0 and not s.handed_out and key not in tried:
            found.append(s)
    return found


def cost_of(s: Evictable, can_spill: bool) -> float | None:
    """Seconds to take the bytes away and have them back; None: they would be lost."""
    making = making_of(s)
    if not can_spill and s.place is None:
        return making
    spilling = spilling_of(s)
    return spilling if making is None else min(making, spilling)


def spilling_of(s: Evictable) -> float:
    """Seconds to write the bytes, unless they are written, and to read them."""
    cost = s.nbytes / rates.read
    return cost if s.place is not None else cost + s.nbytes / rates.write


def making_of(s: Evictable) -> float | None:
    """Seconds to make the bytes again, as it was when somebody last looked; endless where as many
    would be held for it, as such go last; None: that can't be, or they are being read for it.
    """
    known = s.recipe
    if known is None or s.held:
        return None
    if known[0].is_due(s):
        return 0.0
    when, cost = s.price
    if when < 0 or counts.evictions - when > RECENT:
        cost = recipes.price(known[0])
        if cost is not None and recipes.holds_more(known[0], s.nbytes):
            cost = math.inf
        s.price = counts.evictions, cost
    return cost
