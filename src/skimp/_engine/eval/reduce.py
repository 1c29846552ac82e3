"""Reductions over blocks of an array or of an expression, which is never written anywhere.

The source is seen as (a, r, c): dims before, the last reduced dims, kept dims after. It is cut into
units by its shape alone; a unit's partial results are merged with its neighbours' in an order that
depends on nothing else. So neither threads nor deferral nor any setting changes a bit of the
result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from skimp._engine.eval.expr import Array, Expr, Shape
from skimp._engine.eval.passes import pass_sums
from skimp._engine.eval.reader import Reader, prepare_runs, share_reading
from skimp._engine.eval.reducers import (
    LOOPED,
    Reducer,
    State,
    adds,
    adds_rows,
    in_double,
    merge_sums,
    unit_sums,
)
from skimp._engine.eval.run import evaluate, threads_for
from skimp._kernels import bare, compiled
from skimp._kernels.threads import quietly

_UNIT: Final = 1 << 18  # elements that are reduced in one NumPy call
_TOGETHER: Final = 16  # units that one NumPy call reduces where they lie in memory already
_HELD: Final = 1 << 16  # results that are made apart from where they go
_SMALL: Final = 1 << 14  # elements below which buffers and plans cost more than fresh arrays
_COLUMNS: Final = 1 << 14  # kept elements that a unit holds at most
_ROWS: Final = 8  # reduced elements that a unit holds at least
_SPANS: Final = 64  # partial results kept per column

_ACCUMULATE: Final[dict[np.dtype[Any], np.dtype[Any]]] = {
    np.dtype(half): np.dtype(np.float32) for half in (np.float16, ml_dtypes.bfloat16)
}


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a shape is cut. `before` are the dims of a, innermost last, with whether each is reduced.

    A unit is `a` groups of `r` x `c`; where it is less than a whole group, `span` units along r are
    merged one after the other.
    """

    size: int
    before: tuple[tuple[int, bool], ...]
    groups: int
    rows: int
    columns: int
    a: int
    r: int
    c: int
    span: int
    direct: bool  # every unit makes final results
    alone: bool  # there is one unit
    few: bool  # one NumPy call, or one for each unit, where the source lies in memory already
    whole: bool  # the same of whatever size, for not too many results, which are held twice then

    @property
    def spans(self) -> int:
        return -(-self.rows // (self.r * self.span))


@lru_cache(maxsize=4096)
def geometry(shape: Shape, axes: tuple[int, ...]) -> Geometry:
    """Cut `shape`, to be reduced over `axes`, into units."""
    groups = _groups(shape, axes)
    columns = 1 if groups[-1][1] else groups.pop()[0]
    rows = groups.pop()[0]
    before = math.prod(size for size, _ in groups)
    a, r, c, span = 1, rows, columns, 1
    if rows * columns <= _UNIT:
        a = max(1, min(before, _UNIT // max(1, rows * columns)))
    else:
        pieces = -(-columns // _COLUMNS)
        c = -(-columns // pieces)
        r = min(rows, max(_ROWS if columns > 1 else 1, _UNIT // c))
        units = -(-rows // r)
        span = 1 if columns == 1 else -(-units // _SPANS)
    direct = r == rows and not any([reduced for _, reduced in groups])
    alone = r == rows and c == columns and before <= a
    size = math.prod(shape)
    short = r == rows or (before == 1 and span == 1)
    together = c == columns and short
    few = size <= _TOGETHER * _UNIT and together
    whole = together and before * columns <= _HELD
    parts = size, tuple(groups), before, rows, columns
    return Geometry(*parts, a, r, c, span, direct, alone, few, whole)


def _groups(shape: Shape, axes: tuple[int, ...]) -> list[tuple[int, bool]]:
    """Neighbouring dims of one kind as one: (size, whether reduced); some last dim is reduced."""
    reduced = {axis % len(shape) for axis in axes}
    groups: list[tuple[int, bool]] = []
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        kind = dim in reduced
        if groups and groups[-1][1] == kind:
            groups[-1] = (groups[-1][0] * size, kind)
        else:
            groups.append((size, kind))
    if not any(kind for _, kind in groups):
        groups.append((1, True))
    return groups


def reduce(
    source: Expr | Array,
    axes: tuple[int, ...],
    how: Reducer,
    out: Array,
    acc: np.dtype[Any] | None = None,
) -> None:
    """Reduce `source` over `axes` into `out`, whose elements are those of the kept dims in C order.

    Blocks are converted to `acc` first; by default half precision is reduced in float32, and all
    else in its own type. The result is converted to out's type.
    """
    cut = geometry(source.shape, axes)
    if how.places and any(reduced for _, reduced in cut.before):
        raise ValueError(
            f"{how.name}: the reduced dims must be neighbours; got {axes} of {source.shape}"
        )
    if not out.flags.c_contiguous:
        value = np.empty(out.shape, out.dtype)
        reduce(source, axes, how, value, acc)
        out[...] = value
        return
    if cut.size == 0:
        _write_empty(how, out)
        return
    dtype = _accumulator(source.dtype) if acc is None else acc
    if _is_simple(source, cut, how, dtype):
        quietly(_reduce_one, source, cut, how, out, dtype)
    else:
        work = _Reduction(source, cut, how, out, dtype)
        if work.prepared is None or not quietly(work.by_passes):
            work.run()


def _accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _ACCUMULATE.get(dtype, dtype)


def _write_empty(how: Reducer, out: Array) -> None:
    if out.size == 0:
        return
    if how.empty is None:
        raise ValueError(f"{how.name}: there are no elements, and it has no value for none")
    out.fill(how.empty)


def _is_simple(source: Expr | Array, cut: Geometry, how: Reducer, dtype: np.dtype[Any]) -> bool:
    """Whether units are reduced where they are, or so small that fresh arrays do not matter."""
    if cut.alone and cut.size < _SMALL:
        return True
    if not (isinstance(source, np.ndarray) and source.dtype == dtype):
        return False
    return is_short(cut, how, dtype) and source.flags.c_contiguous


def is_short(cut: Geometry, how: Reducer, dtype: np.dtype[Any]) -> bool:
    """Whether `of_units` takes what lies in memory: there is no work for a second thread, or loops
    share it.
    """
    if cut.alone or (cut.few and how.bare and threads_for(cut.size, 1) == 1):
        return True
    return cut.whole and adds(how, dtype, cut.columns)


def _reduce_one(
    source: Expr | Array, cut: Geometry, how: Reducer, out: Array, acc: np.dtype[Any]
) -> None:
    """A source that `is_short`."""
    if isinstance(source, Expr):
        array = np.empty(source.shape, source.dtype)
        evaluate(source, array)
    else:
        array = source
    array = np.ascontiguousarray(array)
    if acc != array.dtype:
        array = array.astype(acc)
    out[...] = of_units(array, cut, how).reshape(out.shape)


def of_units(array: Array, cut: Geometry, how: Reducer) -> Array:
    """The results of a row-major array that `is_short`, in any shape."""
    block = array.reshape(cut.groups, cut.rows, cut.columns)
    if cut.r == cut.rows:
        states = _by_unit(how, block, cut)
        if cut.direct:
            values = [how.value(state, cut.rows) for state in states]
            return values[0] if len(values) == 1 else bare.concatenate(values)
        state = _one_of(states)
    elif adds(how, array.dtype, 1) and cut.columns == 1:
        state = _at_once(how, block, cut)
    else:
        state = _in_pairs(how, block, cut)
    return how.value(state, cut.rows) if cut.direct else _joined(how, state, cut)


def _by_unit(how: Reducer, block: Array, cut: Geometry) -> list[State]:
    """The states of whole groups: at once, unless a unit's numbers decide in what type it is
    reduced (as moments do), which no other may then tell."""
    if how.bare or how.merge is merge_sums or cut.alone:
        return [how.first(block, 0)]
    return [how.first(block[at : at + cut.a], 0) for at in range(0, len(block), cut.a)]


def _one_of(states: list[State]) -> State:
    """Neighbours' as one."""
    if len(states) == 1:
        return states[0]
    return tuple([bare.concatenate(each) for each in zip(*states, strict=True)])


def _at_once(how: Reducer, block: Array, cut: Geometry) -> State:
    """The state of one group, whose units are the rows of one block."""
    if adds_rows(how, block.dtype, 1) and not cut.r % LOOPED:
        sums = unit_sums(compiled.loops(), block.reshape(-1), cut.r, square=not how.bare)
        return (_added(in_double(sums.reshape(-1, 1)), 0),)
    whole = cut.rows // cut.r * cut.r
    units = block[:, :whole].reshape(-1, cut.r, 1)
    parts = _by_unit(how, units, cut)
    counts = np.full(-(-cut.rows // cut.r), cut.r)
    if whole < cut.rows:
        parts.append(how.first(block[:, whole:], whole))
        counts[-1] = cut.rows - whole
    return _tree(how, _one_of(parts), counts, 0)


def _in_pairs(how: Reducer, block: Array, cut: Geometry) -> State:
    """The state of one group's few units, merged in the order of `_tree`, which takes 10 us more
    for two of them.
    """
    parts = [
        (how.first(block[:, at : at + cut.r], at), min(cut.r, cut.rows - at))
        for at in range(0, cut.rows, cut.r)
    ]
    while len(parts) > 1:
        even = len(parts) // 2 * 2
        pairs = zip(parts[0:even:2], parts[1:even:2], strict=True)
        parts = [*[(how.merge(a, n, b, m), n + m) for (a, n), (b, m) in pairs], *parts[even:]]
    return parts[0][0]


def _joined(how: Reducer, state: State, cut: Geometry) -> Array:
    """The results of states of (groups, columns): the reduced dims before the rows are merged."""
    state = tuple([part.reshape(*[size for size, _ in cut.before], cut.columns) for part in state])
    count = cut.rows
    if how.merge is merge_sums:
        (part,) = state
        for dim in range(len(cut.before) - 1, -1, -1):
            size, reduced = cut.before[dim]
            if reduced:
                part = _added(in_double(part), dim)
                count *= size
        return how.value((part,), count)
    for dim in range(len(cut.before) - 1, -1, -1):
        size, reduced = cut.before[dim]
        if reduced:
            state = _tree(how, state, np.full(size, count), dim)
            count *= size
    return how.value(state, count)


class _Reduction:
    """One reduction over many units: which tasks there are, what each gives, how they join."""

    def __init__(
        self, source: Expr | Array, cut: Geometry, how: Reducer, out: Array, acc: np.dtype[Any]
    ) -> None:
        self.source = source
        self.cut = cut
        self.how = how
        self.acc = acc
        self.out = out.reshape(-1, cut.columns)
        self.prepared = prepare_runs(source)
        self.pieces = -(-cut.columns // cut.c)
        self.a, self.batch = cut.a, 1
        brief = how.bare and self.prepared is None and acc == source.dtype
        self.threads = threads_for(cut.size, 1) if brief else threads_for(cut.size)
        if brief and self.pieces == 1:
            share_of = cut.size // (2 * self.threads * _UNIT) if self.threads > 1 else _TOGETHER
            together = max(1, min(_TOGETHER, share_of))
            if cut.r == cut.rows:
                self.a *= together
            elif cut.columns == 1:
                self.batch = together
        self.spans = -(-cut.spans // self.batch)
        self.tasks = -(-cut.groups // self.a) * self.spans * self.pieces
        self.states: list[State] = [()] * (0 if cut.direct else self.tasks)

    def by_passes(self) -> bool:
        """Add up what loops of C make, block by block; whether it is done."""
        how, cut, prepared = self.how, self.cut, self.prepared
        if prepared is None or self.acc != self.source.dtype or cut.groups > _HELD:
            return False
        if not adds_rows(how, self.acc, cut.columns) or (cut.r % LOOPED and cut.r < cut.rows):
            return False
        sums = pass_sums(prepared, cut.groups, cut.r, square=not how.bare)
        if sums is None:
            return False
        self._write((sums.reshape(cut.groups, -1, 1),))
        return True

    def run(self) -> None:
        numbers = iter(range(self.tasks))  # shared by the threads: next() is atomic

        most = self.a * self.batch * self.cut.r * self.cut.c
        source = self.source, self.prepared, most, self.acc

        def work(reader: Reader) -> None:
            for number in numbers:
                self._do(number, reader)
            reader.close()

        share_reading(Reader(*source), work, min(self.threads, self.tasks), source)
        if not self.cut.direct:
            quietly(self._join)

    def _do(self, number: int, reader: Reader) -> None:
        cut = self.cut
        rest, piece = divmod(number, self.pieces)
        group, span = divmod(rest, self.spans)
        first = group * self.a
        groups = slice(first, min(first + self.a, cut.groups))
        columns = slice(piece * cut.c, min((piece + 1) * cut.c, cut.columns))
        rows = self.batch * cut.span * cut.r
        start = span * rows
        stop = min(start + rows, cut.rows)
        span_of = self._span if self.batch == 1 else self._units
        state = span_of(reader, groups, start, stop, columns)
        if cut.direct:
            value = self.how.value(state, cut.rows)
            self.out[groups, columns] = value
        else:
            self.states[number] = state

    def _span(self, reader: Reader, groups: slice, start: int, stop: int, columns: slice) -> State:
        """The state of rows start..stop, unit after unit."""
        state: State | None = None
        for row in range(start, stop, self.cut.r):
            end = min(row + self.cut.r, stop)
            block = self._block(reader, groups, row, end, columns)
            part = self.how.first(block, row)
            state = part if state is None else self.how.merge(state, row - start, part, end - row)
        assert state is not None
        return state

    def _units(self, reader: Reader, groups: slice, start: int, stop: int, columns: slice) -> State:
        """The states of the units of rows start..stop, a unit being a group of its own here."""
        r = self.cut.r
        whole = start + (stop - start) // r * r
        found = []
        if whole > start:
            block = self._block(reader, groups, start, whole, columns)
            found.append(self.how.first(block.reshape(-1, r, 1), start))
        if stop > whole:
            found.append(self.how.first(self._block(reader, groups, whole, stop, columns), whole))
        return tuple(bare.concatenate(parts) for parts in zip(*found, strict=True))

    def _block(self, reader: Reader, groups: slice, start: int, stop: int, columns: slice) -> Array:
        cut = self.cut
        group = cut.rows * cut.columns
        width = columns.stop - columns.start
        if groups.stop - groups.start > 1 or width == cut.columns:
            first = groups.start * group + start * cut.columns
            last = (groups.stop - 1) * group + stop * cut.columns
            return reader.run(first, last).reshape(-1, stop - start, width)
        first = groups.start * group + columns.start
        return reader.rows(first, cut.columns, start, stop, width)[None]

    def _join(self) -> None:
        """Merge the tasks' states."""
        self._write(self._gathered())

    def _write(self, state: State) -> None:
        """The results of states of (groups, spans, columns): rows are merged first, then the
        reduced dims before them."""
        cut = self.cut
        if self.how.merge is merge_sums:
            (part,) = state
            state = (_added(in_double(part) if part.shape[1] > 1 else part, 1),)
        else:
            starts = range(0, cut.rows, cut.r * cut.span)
            counts = np.array([min(cut.r * cut.span, cut.rows - start) for start in starts])
            state = _tree(self.how, state, counts, 1)
        self.out[...] = _joined(self.how, state, cut).reshape(self.out.shape)

    def _gathered(self) -> State:
        cut = self.cut
        parts = []
        for each in zip(*self.states, strict=True):
            lines = (
                each
                if self.pieces == 1
                else [
                    bare.concatenate(each[at : at + self.pieces], axis=1)
                    for at in range(0, len(each), self.pieces)
                ]
            )
            parts.append(bare.concatenate(lines).reshape(cut.groups, cut.spans, cut.columns))
        return tuple(parts)


def _tree(how: Reducer, state: State, counts: Any, axis: int) -> State:
    """Merge neighbours along `axis`, pairs of pairs, until one is left; the axis goes."""
    counts = counts.reshape(-1, *(1,) * (state[0].ndim - axis - 1))
    while len(counts) > 1:
        even = len(counts) // 2 * 2
        one, other = _every_other(state, axis, 0, even), _every_other(state, axis, 1, even)
        n, m, last = counts[0:even:2], counts[1:even:2], counts[even:]
        counts = n + m
        merged = how.merge(one, n, other, m)
        if len(last):
            counts = bare.concatenate([counts, last])
            rest = _every_other(state, axis, even, even + 1)
            merged = tuple(
                bare.concatenate([a, b], axis=axis) for a, b in zip(merged, rest, strict=True)
            )
        state = merged
    return tuple(part.reshape(part.shape[:axis] + part.shape[axis + 1 :]) for part in state)


def _added(part: Array, axis: int) -> Array:
    """`_tree` of partial sums, which need no counts."""
    before: tuple[Any, ...] = (slice(None),) * axis
    while part.shape[axis] > 1:
        even = part.shape[axis] // 2 * 2
        rest = part[(*before, slice(even, None))]
        part = part[(*before, slice(0, even, 2))] + part[(*before, slice(1, even, 2))]
        if rest.size:
            part = bare.concatenate([part, rest], axis=axis)
    found: Array = part[(*before, 0)]
    return found


def _every_other(state: State, axis: int, start: int, stop: int) -> State:
    box = (slice(None),) * axis + (slice(start, stop, 2),)
    return tuple(part[box] for part in state)
