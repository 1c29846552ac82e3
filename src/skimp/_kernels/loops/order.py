"""The first of rows in order, and running sums."""

from __future__ import annotations

from typing import Any

from skimp._kernels.loops.arithmetic import (
    rows_around,
    rows_first,
    rows_floats,
    rows_like,
    rows_places,
    rows_places_like,
)


def topped(x: Any, k: Any, dim: Any, largest: Any) -> Any:
    """(values, places): the first k of each row of float32 without gaps, in order, and where they
    are, as new arrays; ties keep their order. None of any other, as along a dim behind which others
    have elements, or where one is NaN."""
    around = [0, 0, 0]
    if not rows_around(x, dim, around) or around[2] != 1 or not 0 < k <= around[1]:
        return None
    values = rows_first(x, dim, k)
    places = rows_places_like(values)
    done = _topped(
        rows_floats(x), around[0], around[1], k, largest, rows_floats(values), rows_places(places)
    )
    return (values, places) if done else None


def _topped(x: Any, rows: Any, n: Any, k: Any, largest: Any, values: Any, places: Any) -> Any:
    for r in range(rows):
        to, last = r * k, r * k + k - 1
        for i in range(n):
            one = x[r * n + i]
            if one != one:
                return False
            if i >= k and not _beats(one, values[last], largest):
                continue
            at = to + min(i, k - 1)
            while at > to and _beats(one, values[at - 1], largest):
                values[at] = values[at - 1]
                places[at] = places[at - 1]
                at -= 1
            values[at] = one
            places[at] = i
    return True


def _beats(one: Any, other: Any, largest: Any) -> Any:
    return one > other if largest else one < other


def accumulated(x: Any, dim: Any) -> Any:
    """The sums so far along a dim of float32 without gaps, of doubles, each rounded, as a new
    array; None of any other."""
    around = [0, 0, 0]
    if not rows_around(x, dim, around):
        return None
    out = rows_like(x)
    _accumulated(rows_floats(x), around[0], around[1], around[2], rows_floats(out))
    return out


def _accumulated(x: Any, before: Any, n: Any, after: Any, out: Any) -> None:
    for i in range(before):
        for k in range(i * n * after, i * n * after + after):
            out[k] = x[k]
            total = float(x[k])
            for j in range(1, n):
                total += float(x[k + j * after])
                out[k + j * after] = total
