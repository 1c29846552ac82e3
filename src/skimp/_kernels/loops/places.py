"""Rows that are added to rows at places, and products of sparse matrices."""

from __future__ import annotations

from typing import Any

from skimp._kernels.loops.arithmetic import _places


def added(target: Any, places: Any, rows: Any) -> Any:
    """target[places[i]] += rows[i], one after the other; whether it is done, as nothing is where
    a place is not one of the target's."""
    if _lie_outside(_places(places), places.shape[0], target.shape[0]):
        return False
    for i in range(places.shape[0]):
        at = places[i]
        for k in range(target.shape[1]):
            target[at, k] += rows[i, k]
    return True


def weighed(target: Any, places: Any, rows: Any, of: Any, by: Any) -> Any:
    """target[places[i]] += rows[of[i]] * by[i]; likewise."""
    if _lie_outside(_places(places), places.shape[0], target.shape[0]):
        return False
    if _lie_outside(_places(of), of.shape[0], rows.shape[0]):
        return False
    for i in range(places.shape[0]):
        at, row, factor = places[i], of[i], by[i]
        for k in range(target.shape[1]):
            target[at, k] += rows[row, k] * factor
    return True


def _lie_outside(places: Any, count: Any, n: Any) -> Any:
    found = 0
    for i in range(count):
        found |= (places[i] < 0) | (places[i] >= n)
    return found
