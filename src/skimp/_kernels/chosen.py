"""What is added to the places of a dim that were looked at: the adjoint of a choice that follows
from sizes, as padding and resampling make it.

All first ones of their places are added at once, then all second ones, so additions have the order
that they have one by one. Where these come in steps, as nearly all do, they are slices: an addition
of views, and no index.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels.order import runs, stable_order
from skimp._kernels.rows import run_of

Array = np.ndarray[Any, Any]
Pairs = list[tuple[Any, Any]]  # where in a dim something goes, and where it is

_KEPT: Final = 1 << 12  # places of which the pairs are kept
_ROUNDS: Final = 16  # that come to one place
_SLICES: Final = 4  # that are sooner than an index


def add_chosen(target: Array, dim: int, places: Array, source: Array) -> None:
    """target[..., places[i], ...] += source[..., i, ...] for all i, along `dim`."""
    if not source.size:
        return
    n = target.shape[dim]
    pairs = _kept(places.tobytes(), n) if len(places) <= _KEPT else _pairs(places, n)
    before: Any = (slice(None),) * dim
    if pairs is None:
        starts, _ = runs(places)
        if (places[1:] < places[:-1]).any():
            np.add.at(target, (*before, places), source)
        else:
            target[(*before, places.take(starts))] += np.add.reduceat(source, starts, axis=dim)
        return
    for to, of in pairs:
        part = source[(*before, of)] if type(of) is slice else source.take(of, dim)
        target[(*before, to)] += part


@lru_cache(128)
def _kept(places: bytes, n: int) -> Pairs | None:
    return _pairs(np.frombuffer(places, np.int64), n)


def _pairs(places: Array, n: int) -> Pairs | None:
    """What goes where, one round after the other; None where many come to one place."""
    order = stable_order(places, n)
    at = places[order]
    starts, counts = runs(at)
    most = int(counts.max())
    if most > _ROUNDS:
        return None
    found: Pairs = []
    for rank in range(most):
        first = starts[counts > rank]
        found += _in_steps(at[first], order[first + rank])
    return found


def _in_steps(to: Array, of: Array) -> Pairs:
    """Places that rise, and where what goes there is, as slices if few are enough."""
    turns = np.flatnonzero((np.diff(to, 2) != 0) | (np.diff(of, 2) != 0)) + 1
    found: Pairs = []
    start = 0
    while start < len(to):
        if len(found) == _SLICES:
            return [(run_of(to), of)]
        later = turns[turns > start]
        stop = int(later[0]) + 1 if len(later) else len(to)
        found.append((_slice(to[start:stop]), _slice(of[start:stop])))
        start = stop
    return found


def _slice(steps: Array) -> slice:
    """Places in equal steps."""
    first, last = steps.item(0), steps.item(-1)
    if len(steps) == 1:
        return slice(first, first + 1)
    step = steps.item(1) - first
    if step > 0:
        return slice(first, last + 1, step)
    return slice(first, last - 1 if last else None, step)
