"""Which storage's bytes go: the one that costs least to have back, for what it gives and how long
nobody has wanted it (Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021).

    cost to bring back / (bytes x time since it was used)

A search looks at a sample, so that it does not grow with the program.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Collection
from time import perf_counter
from typing import Final

from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.spill import rates
from skimp._engine.memory.ledger import host

SAMPLE: Final = 64  # candidates that a search looks at

Known = dict[int, weakref.ref[Evictable]]
_random = random.Random(0)  # of its own: programs seed the other


def choose(known: Known, tried: Collection[int], can_spill: bool) -> Evictable | None:
    """The storage to evict next among those that are `known` and not `tried`; None: there is none.

    What has died is forgotten on the way.
    """
    now = perf_counter()
    best, lowest = None, float("inf")
    for s in _candidates(known, tried):
        cost = cost_of(s, can_spill)
        if cost is None:
            continue
        score = cost / (s.nbytes * (now - s.used + 1e-6))
        if score < lowest:
            best, lowest = s, score
    return best


def _candidates(known: Known, tried: Collection[int]) -> list[Evictable]:
    """Those whose bytes are here; a sample where they are many."""
    keys = [key for key in list(known) if key not in tried]
    if len(keys) > 2 * SAMPLE:
        sampled = _resident(known, _random.sample(keys, SAMPLE))
        if sampled:
            return sampled
    return _resident(known, keys)


def _resident(known: Known, keys: list[int]) -> list[Evictable]:
    found = []
    for key in keys:
        ref = known.get(key)
        s = None if ref is None else ref()
        if s is None:
            known.pop(key, None)
        elif s.block is not None and s.nbytes > 0 and not s.handed_out:
            found.append(s)
    return found


def cost_of(s: Evictable, can_spill: bool) -> float | None:
    """Seconds to take the bytes away and have them back; None: they would be lost."""
    if not can_spill:
        return None
    cost = s.nbytes / rates.read
    return cost if s.place is not None else cost + s.nbytes / rates.write


__all__ = ["Known", "choose", "cost_of", "host"]
