"""Rows that are added (or multiplied, ...) to rows of another array, several of which may go to one
place. `ufunc.at` goes element by element; here whole blocks of rows are merged at once, in the
order that it has, so the bits are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, compiled
from skimp._kernels.order import runs, stable_order

Array = np.ndarray[Any, Any]
Give = Callable[[Array, Array], Any]  # writes the rows of these numbers into an array

NARROW: Final = 8  # elements of a row, below which elements are merged one by one
_FEW: Final = 1 << 15  # elements in all, the same
_MANY: Final = 32  # rows of one place from which on they are merged by themselves
_BLOCK: Final = 1 << 16  # elements that are merged at once: they stay in the cache
_ELEMENTS: Final = 1 << 13  # the same, one by one: each has its place in 8 bytes
_ROUNDS: Final = 4  # slices of one place
_WORTH: Final = 1 << 10  # elements of slices
_LISTED: Final = 64  # places that are looked at one by one


def taking(rows: Array) -> Give:
    """What gives the rows of an array, in whatever type it is asked for."""
    rows = np.ascontiguousarray(rows)  # or each `take` would do it

    def give(numbers: Array, out: Array) -> None:
        if out.dtype == rows.dtype:
            rows.take(numbers, 0, out=out, mode="clip")
        else:
            out[...] = rows.take(numbers, 0)

    return give


def are_distinct(places: Array) -> bool:
    """Whether these are few, and each is there once: then rows may be written to all at once."""
    return places.size < _LISTED and len(set(places.tolist())) == places.size


def add_rows(target: Array, places: Array, source: Array) -> None:
    """target[places[i]] += source[i] for all i: `merge_rows` of arrays that lie row by row, of any
    dims behind the first.
    """
    width = math.prod(target.shape[1:])
    into, rows = target.reshape(len(target), width), source.reshape(places.size, width)
    listed = rows.size <= _ELEMENTS or compiled.taking(into, rows) is not None
    if listed and rows.dtype == target.dtype:
        _merge_listed(into, places, rows, np.add)
    else:
        merge_rows(into, places, taking(rows))


def add_slices(target: Array, dim: int, places: Array, source: Array) -> None:
    """The same of slices along any dim, of shapes that fit: all first ones of their places at once,
    then all second ones, unless some place has many, or they are few.
    """
    before: Any = (slice(None),) * dim
    if source.size < _WORTH:
        np.add.at(target, (*before, places), source)
        return
    order = stable_order(places, target.shape[dim])
    at = places[order]
    starts, counts = runs(at)
    most = int(counts.max())
    if most > _ROUNDS:
        np.add.at(target, (*before, places), source)
        return
    for rank in range(most):
        first = starts[counts > rank]
        target[(*before, run_of(at[first]))] += source.take(order[first + rank], dim)


def run_of(places: Array) -> Any:
    """Places that rise, as a slice where each follows the one before."""
    first, last = places.item(0), places.item(-1)
    return slice(first, last + 1) if last - first + 1 == places.size else places


def merge_rows(target: Array, places: Array, give: Give, ufunc: Any = np.add) -> None:
    """target[places[i]] = ufunc(target[places[i]], row i) for all i, in this order.

    `target` is a row-major (n, width), and `places` are from 0 to n - 1. `give(numbers, out)`
    writes the rows of these numbers into `out`, of the target's dtype.
    """
    n, width = target.shape
    looped = ufunc is np.add and compiled.taking(target) is not None
    if looped or width < NARROW or places.size * width <= _FEW:
        _merge_elements(target, places, give, ufunc)
        return
    order = stable_order(places, n)
    at = places[order]
    starts, counts = runs(at)
    many = counts >= _MANY
    for start, count in zip(starts[many].tolist(), counts[many].tolist(), strict=True):
        _merge_one(target[at[start]], order[start : start + count], give, ufunc)
    starts, counts = starts[~many], counts[~many]
    falling = stable_order(_MANY - counts, _MANY)
    starts, counts = starts[falling], counts[falling]
    step = max(1, _BLOCK // width)
    scratch = np.empty((2, min(step, starts.size), width), target.dtype)
    for first in range(0, starts.size, step):
        part = slice(first, first + step)
        to = at[starts[part]]
        into = scratch[0, : to.size]
        target.take(to, 0, out=into, mode="clip")
        _merge_ranks(into, scratch[1], order, starts[part], counts[part], give, ufunc)
        target[to] = into


def _merge_ranks(
    into: Array, rows: Array, order: Array, starts: Array, counts: Array, give: Give, ufunc: Any
) -> None:
    """All first rows of their places at once, then all second ones; counts fall."""
    for rank in range(int(counts[0])):
        n = bare.count_nonzero(counts > rank)
        give(order.take(starts[:n] + rank), rows[:n])
        ufunc(into[:n], rows[:n], out=into[:n])


def _merge_one(row: Array, numbers: Array, give: Give, ufunc: Any) -> None:
    """Many rows into one."""
    step = max(_MANY, _BLOCK // row.size)
    scratch = np.empty((min(step, numbers.size) + 1, row.size), row.dtype)
    for first in range(0, numbers.size, step):
        part = numbers[first : first + step]
        scratch[0] = row
        give(part, scratch[1 : part.size + 1])
        ufunc.reduce(scratch[: part.size + 1], axis=0, out=row, dtype=row.dtype)


def _merge_elements(target: Array, places: Array, give: Give, ufunc: Any) -> None:
    width = target.shape[1]
    step = max(1, _ELEMENTS // max(1, width))
    for first in range(0, places.size, step):
        numbers = np.arange(first, min(first + step, places.size))
        rows = np.empty((numbers.size, width), target.dtype)
        give(numbers, rows)
        _merge_listed(target, places[first : first + step], rows, ufunc)


def _merge_listed(target: Array, places: Array, rows: Array, ufunc: Any) -> None:
    """Rows that are there, element by element."""
    width = target.shape[1]
    at = places.astype(np.int64, copy=False)
    loops = compiled.taking(target, rows) if ufunc is np.add else None
    if loops is not None and loops.added(target, np.ascontiguousarray(at), rows):
        return
    if width != 1:
        at = at[:, None] * width + np.arange(width)
    ufunc.at(target.reshape(-1), at.reshape(-1), rows.reshape(-1))
