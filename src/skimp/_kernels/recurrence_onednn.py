"""Steps of recurrent nets by oneDNN (`onednn`), where it is installed.

A product and all that is done with its result, number by number, are one call, which a team of
threads that wait awake shares. Bits don't depend on how many they are. The weights are laid out
once for a whole sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import onednn, shaping, teams
from skimp._kernels.onednn_runs import Runs, together
from skimp._kernels.scratch import Scratch, demand, give
from skimp.config import config

Array = np.ndarray[Any, Any]
Line = tuple[Array, Array]
Sizes = tuple[int, int, int, int]  # gates, rows, what is added up, columns
Made = Callable[[Array, Array], None]

_TYPE: Final = np.dtype(np.float32)
_LEAST: Final = 1 << 19  # multiplications of a step that threads share, where a call pays
_DEEP: Final = 1 << 10  # what is added up in one go: longer sums may be cut, by threads
_KIND: Final = b"brg"  # how the name of code begins whose sums are not
_STEPS: Final = 4  # after so many a team's account is settled, which takes 2 us
_PLAIN: Final = (onednn.TOTAL,)  # what is done with a product of weights that are laid out
_BENT: Final = (*_PLAIN, onednn.TANH)
_LINED: Final = (*_PLAIN, onednn.MULTIPLY, onednn.TANH, onednn.MULTIPLY, onednn.ADD)
_BESIDE: Final = tuple([onednn.THEN * which + onednn.BESIDE for which in (2, 4, 5)])  # of _LINED


class _Kind(NamedTuple):
    """A step on so many threads, and what brings weights into the layout that it wants."""

    threads: int
    runs: Runs
    lies: onednn.Handle
    brings: Runs | None


@contextmanager
def activation(
    weights: Array, gates: int, batch: int, tanh: bool, line: Line | None = None
) -> Iterator[Made | None]:
    """As `recurrence.activation`; None where oneDNN does not make it, which follows from shapes,
    types and the library alone."""
    rows, depth = weights.shape
    sizes = gates, batch, depth, rows // gates
    then = _PLAIN if not tanh else _BENT if line is None else _LINED
    kinds = _kinds(sizes, weights.dtype, then)
    if not kinds:
        yield None
        return
    beside = [] if line is None else [_wide(each, gates, rows // gates) for each in line]
    fixed = [shaping.address(a) for a in (*beside[:1], *beside)]
    with _laid(kinds[0], weights) as at, _taken(kinds, [at, *fixed]) as step:
        yield step


@contextmanager
def projection(weights: Array, gates: int, batch: int, some: int) -> Iterator[Made | None]:
    """As `recurrence.projection`; None where oneDNN does not make it."""
    rows, depth = weights.shape
    kinds = _kinds((gates, batch, depth, rows // gates), weights.dtype, _PLAIN, (some,))
    if not kinds:
        yield None
        return
    with _laid(kinds[0], weights) as at, _taken(kinds, [at]) as step:
        yield step


@contextmanager
def _laid(kind: _Kind, weights: Array) -> Iterator[int]:
    """Where weights are as they are wanted. OutOfMemoryError: a budget has no room for that."""
    assert kind.brings is not None
    given = np.ascontiguousarray(weights)
    laid = demand(-(-onednn.size(kind.lies.value) // _TYPE.itemsize), _TYPE)
    at = shaping.address(laid)
    kind.brings.make((shaping.address(given), at))
    yield at
    give(laid)


@contextmanager
def product(like: Array, weights: Array, out: Array) -> Iterator[Callable[[Array], None] | None]:
    """As `recurrence.product`; None where oneDNN does not make it."""
    sizes = 1, len(like), *weights.shape
    dense = all([a.flags.c_contiguous for a in (like, weights, out)])
    kinds = _kinds(sizes, weights.dtype, ()) if dense else ()
    if not kinds:
        yield None
        return
    with _taken(kinds, [shaping.address(weights)]) as step:
        yield lambda d: step(d, out)


def _wide(numbers: Array, gates: int, hidden: int) -> Array:
    """A number for each gate as one for each of its columns."""
    return np.repeat(numbers.reshape(gates), hidden)


@contextmanager
def _taken(kinds: tuple[_Kind, ...], fixed: list[int]) -> Iterator[Made]:
    with Scratch((max([kind.runs.scratch for kind in kinds]) // 4 + 1,), _TYPE) as room:
        step = _Step(kinds, fixed, shaping.address(room))
        yield step.make
        step.leave()


class _Step:
    """A step on a team, as long as none of it is late, or else on the thread that asks."""

    __slots__ = ("_began", "_fixed", "_kind", "_kinds", "_left", "_room", "_run")

    def __init__(self, kinds: tuple[_Kind, ...], fixed: list[int], room: int) -> None:
        self._kinds, self._fixed, self._room = kinds, fixed, room
        self._take(kinds[together(len(kinds) > 1) > 1])

    def _take(self, kind: _Kind) -> None:
        self._kind, self._run = kind, kind.runs.borrow()
        self._left, self._began = _STEPS, teams.begin()

    def make(self, a: Array, into: Array) -> None:
        onednn.use_threads(self._kind.threads)  # another step may be under way beside this
        at = shaping.address(a), shaping.address(into), *self._fixed
        self._run.make(at, self._room)
        if self._kind.threads > 1:
            self._left -= 1
            if not self._left:
                self._settle()

    def _settle(self) -> None:
        teams.end(self._began)
        if together(True) == 1:
            self._kind.runs.give(self._run)
            self._take(self._kinds[0])
        else:
            self._left, self._began = _STEPS, teams.begin()

    def leave(self) -> None:
        """After the last."""
        if self._kind.threads > 1:
            teams.end(self._began)
        self._kind.runs.give(self._run)


def _kinds(
    sizes: Sizes, dtype: Any, then: onednn.Ints, lead: onednn.Ints = ()
) -> tuple[_Kind, ...]:
    """The step on one thread, and on a team if that pays; none where oneDNN does not make it."""
    gates, batch, depth, columns = sizes
    effort = math.prod(lead) * gates * batch * depth * columns
    if dtype != _TYPE or effort < _LEAST or depth > _DEEP or batch < 2 or onednn.library() is None:
        return ()
    return _made(sizes, then, lead, config.threads)


@lru_cache(32)  # of .4 MiB each
def _made(sizes: Sizes, then: onednn.Ints, lead: onednn.Ints, threads: int) -> tuple[_Kind, ...]:
    alone = _kind(sizes, then, lead, 1)
    if alone is None or threads == 1:
        return () if alone is None else (alone,)
    team = _kind(sizes, then, lead, threads)
    if team is None or not onednn.equal(alone.lies.value, team.lies.value):
        return (alone,)
    return alone, team


def _kind(sizes: Sizes, then: onednn.Ints, lead: onednn.Ints, threads: int) -> _Kind | None:
    gates, batch, depth, columns = sizes
    ones = (1,) * len(lead)
    each = (*ones, gates, depth, columns)
    a, into, beside, weights = [
        _rows(shape)
        for shape in (
            (*lead, 1, batch, depth), (*lead, gates, batch, columns), (gates, 1, columns), each
        )
    ]  # fmt: skip
    turned = onednn.layout(each, (*[math.prod(each)] * len(lead), depth * columns, 1, depth))
    weights = onednn.layout(each) if then else weights
    given = {onednn.TOTAL: None, onednn.TANH: (0, 0)}
    after: list[onednn.After] = [(what, given.get(what, beside)) for what in then]
    try:
        with onednn.team(threads):
            primitive = onednn.products(a, weights, into, after)
            lies = primitive.weights()
        with onednn.team(1):
            brings = onednn.reorder(turned.value, lies.value) if then else None
    except onednn.Unsupported:
        return None
    if not primitive.name.startswith(_KIND):
        return None
    layouts = {onednn.FROM: a, onednn.TO: into, onednn.WEIGHTS: lies}
    runs = Runs(primitive, layouts | (dict.fromkeys(_BESIDE, beside) if then == _LINED else {}))
    ends = {onednn.FROM: turned, onednn.TO: lies}
    return _Kind(threads, runs, lies, None if brings is None else Runs(brings, ends))


def _rows(shape: onednn.Ints) -> onednn.Handle:
    """Row-major."""
    return onednn.layout(shape, tuple([math.prod(shape[dim + 1 :]) for dim in range(len(shape))]))
