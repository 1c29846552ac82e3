"""The first of rows in order, and running sums."""

from __future__ import annotations

from typing import Any


def topped(x: Any, largest: Any, values: Any, places: Any) -> Any:
    """values, places = the first of each row in order, as many as there is room for, and where they
    are; ties keep their order. Whether it is done: not where one is NaN."""
    last = values.shape[1] - 1
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            one = x[r, i]
            if one != one:
                return False
            if i > last and not _beats(one, values[r, last], largest):
                continue
            at = min(i, last)
            while at > 0 and _beats(one, values[r, at - 1], largest):
                values[r, at] = values[r, at - 1]
                places[r, at] = places[r, at - 1]
                at -= 1
            values[r, at] = one
            places[r, at] = i
    return True


def _beats(one: Any, other: Any, largest: Any) -> Any:
    return one > other if largest else one < other


def accumulated(x: Any, out: Any) -> None:
    """out = the sums so far along the middle dim, of doubles, each rounded."""
    for i in range(out.shape[0]):
        for k in range(out.shape[2]):
            out[i, 0, k] = x[i, 0, k]
            total = float(x[i, 0, k])
            for j in range(1, out.shape[1]):
                total += float(x[i, j, k])
                out[i, j, k] = total
