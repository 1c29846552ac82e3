"""What reductions compute: of a piece, of two pieces together, and in the end.

A reducer's state is a tuple of arrays of one shape. `first` makes it from a contiguous-inside block
(a, r, c), reducing the middle dim; `merge` joins the states of two neighbouring pieces, which stand
for `n` and `m` elements each; `value` is the result for `n` elements, in the type of the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.eval.expr import Array
from skimp._kernels import bare, compiled, sharing
from skimp._kernels.bare import einsum
from skimp._kernels.scratch import give, row_extremes, take

State = tuple[Array, ...]
Count = Any  # an int, or an array that broadcasts against the states


@dataclass(frozen=True, slots=True, eq=False)
class Reducer:
    """A reduction. `empty` is the result over no elements; None where there is none.

    `first` is told where in the reduced dim its block starts, for reducers that give positions
    (`places`); those reduce neighbouring dims only. `bare`: `first` takes no memory of the block's
    size, so that long blocks cost no more than short ones. `sums`: that of float32 along rows is
    compiled loops', which need none either and share the rows among a team (`adds`).
    """

    name: str
    first: Callable[[Array, int], State]
    merge: Callable[[State, Count, State, Count], State]
    value: Callable[[State, Count], Array]
    empty: Any = None
    places: bool = False
    bare: bool = False
    sums: bool = False


def adds(how: Reducer, dtype: np.dtype[Any], columns: int) -> bool:
    """Whether loops that a team shares add up what this reducer gives of a block of any size."""
    kind = how.sums and (how.bare or columns == 1)
    return kind and dtype.char == "f" and compiled.loops() is not None


def adds_rows(how: Reducer, dtype: np.dtype[Any], columns: int) -> bool:
    """Whether what it gives of rows is these loops' sums, of values or of squares, alone."""
    return how.sums and how.merge is merge_sums and columns == 1 and dtype.char == "f"


SHORT: Final = 256  # elements of a row up to which 16 sums that run on lose no more than pairs do
_PIECE: Final = 512  # elements of a row that one loop adds up
LOOPED: Final = 2048  # the same of a compiled loop
_LONG: Final = 1 << 14  # elements of a row from which what pieces leave over may be added apart
_ALONE: Final = 9000  # elements of a matrix up to which OpenBLAS multiplies a vector on one thread
_ROWS: Final = 8  # of a group at least
_STEP: Final = 64  # rows that a loop adds up by themselves, at least,
_PARTS: Final = 16  # in so many parts of all at most


def row_sums(x: Array) -> Array:
    """The sum of each row, bound by memory: NumPy's pairwise sum takes a half longer.

    Pieces are added by einsum, in 16 sums that run on, and so are their sums, of which a unit has
    512: the error grows as that of the pairwise sum. Of short rows, which NumPy adds one by one,
    einsum makes the sums in a third of the time.
    """
    total: Array
    r = x.shape[1]
    if x.dtype.char == "f" and x.size and (loops := compiled.loops()) is not None:
        return looped_sums(loops, np.ascontiguousarray(x))
    if r <= SHORT and x.dtype.char in "fd":
        total = einsum("ij->i", x)
        return total
    if r < _PIECE or x.dtype.char not in "fd" or (r < _LONG and r % _PIECE):
        total = np.add.reduce(x, axis=1)
        return total
    whole = r // _PIECE * _PIECE
    total = einsum("ij->i", einsum("ijk->ij", x[:, :whole].reshape(len(x), -1, _PIECE)))
    if whole < r:
        total += einsum("ij->i", x[:, whole:])
    return total


def add_up(block: Array) -> Array:
    """Sum over the middle dim with an error that grows slowly.

    NumPy adds pairwise along contiguous memory only; over rows it adds one after the other, so long
    columns are added in about sqrt(r) groups of sqrt(r) rows, or fewer. BLAS adds a group (times
    ones) in a twentieth to two thirds of NumPy's time, on one thread if it is small.
    """
    a, r, c = block.shape
    total: Array
    if c == 1:
        total = row_sums(block.reshape(a, r)).reshape(a, 1)
        return total
    if r < 64:
        total = np.add.reduce(block, axis=1)
        return total
    if block.dtype.char == "f" and (loops := compiled.loops()) is not None:
        total = np.empty((a, c), block.dtype)
        step = max(_STEP, -(-r // (4 * _PARTS)) * 4)  # by the shape alone, as are bits
        room = np.empty(a * -(-r // step) * c)
        given = np.ascontiguousarray(block).reshape(-1), r, c, step, room, total.reshape(-1)
        sharing.call(loops.columns, block.size, sharing.BRIEF, *given)
        return total
    step = math.isqrt(r)
    by_blas = c <= _ALONE // _ROWS and block.dtype.char in "fd"
    if by_blas:
        step = min(step, _ALONE // c)
    whole = r // step * step
    rows = block[:, :whole].reshape(a, -1, step, c)
    if by_blas:
        groups = np.matmul(_ones(step, block.dtype), rows)
    else:
        groups = np.add.reduce(rows, axis=2)
    total = np.add.reduce(groups, axis=1)
    if whole < r:
        total += np.add.reduce(block[:, whole:], axis=1)
    return total


def looped_sums(
    loops: Any, x: Array, kept: int = 1, ones: int = 0, square: bool = False,
    middles: Array | None = None,
) -> Array:  # fmt: skip
    """The sums of rows of float32 that lie row by row, of all dims behind the first `kept`, by a
    loop that a team shares: of the shape of these, and so many dims of size 1. To `square`: of
    squared distances from a number for each row, or from 0.
    """
    found: Array
    if x.size < sharing.FROM:
        found = loops.squares(x, middles, kept, ones) if square else loops.totals(x, kept, ones)
        return found
    given = x, kept, ones, 0, square, middles
    found = sharing.call(loops.shared_totals, x.size, sharing.BRIEF, *given)
    return found


def unit_sums(loops: Any, row: Array, unit: int, square: bool = False) -> Array:
    """The sums of each `unit` elements of a row of float32, likewise, in one call."""
    given = row, 0, 0, unit, square, None
    found: Array = sharing.call(loops.shared_totals, row.size, sharing.BRIEF, *given)
    return found


@lru_cache
def _ones(count: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(count, dtype)


_WIDER: Final = {
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.complex64): np.dtype(np.complex128),
}


def in_double(state: Array) -> Array:
    """A partial sum in the type in which partial sums are added."""
    return state.astype(_WIDER.get(state.dtype, state.dtype), copy=False)


def _only(state: State, n: Count) -> Array:
    return state[0]


def merge_sums(one: State, n: Count, other: State, m: Count) -> State:
    return tuple(in_double(a) + in_double(b) for a, b in zip(one, other, strict=True))


def _of_ufunc(name: str, ufunc: np.ufunc, empty: Any = None) -> Reducer:
    return Reducer(
        name,
        lambda block, start: (ufunc.reduce(block, axis=1),),
        lambda one, n, other, m: (ufunc(one[0], other[0]),),
        _only,
        empty,
        bare=True,
    )


def _extreme(name: str, ufunc: np.ufunc) -> Reducer:
    def first(block: Array, start: int) -> State:
        a, r, c = block.shape
        if c > 1:
            return (ufunc.reduce(block, axis=1),)
        return (row_extremes(ufunc, block.reshape(a, r)).reshape(a, 1),)

    return replace(_of_ufunc(name, ufunc), first=first)


def _looping(block: Array) -> Any:
    """The compiled loops, if they add up squares of this block."""
    if block.shape[2] > 1 or block.dtype.char != "f" or not block.size:
        return None
    return compiled.loops()


Term = Callable[[Array, Array], object]  # writes what is added up for a block, in a real type


def _sum_of(term: Term, block: Array) -> Array:
    """The sum of a function of the block over the middle dim, its values in scratch."""
    if term is _abs_squared and (loops := _looping(block)) is not None:
        rows = np.ascontiguousarray(block.reshape(len(block), -1))
        return looped_sums(loops, rows, 1, 1, True)
    flat = take(block.size, block.real.dtype)
    values = flat.reshape(block.shape)
    term(block, values)
    total = add_up(values)
    give(flat)
    return total


def _of_sum(name: str, term: Term | None, value: Any = _only, empty: Any = 0) -> Reducer:
    def first(block: Array, start: int) -> State:
        return (add_up(block) if term is None else _sum_of(term, block),)

    sums = term is None or term is _abs_squared
    return Reducer(name, first, merge_sums, value, empty, bare=term is None, sums=sums)


def _abs_squared(block: Array, out: Array) -> None:
    if block.dtype.kind != "c":
        np.square(block, out=out)
        return
    np.square(block.real, out=out)
    np.add(out, np.square(block.imag), out=out)


def _root(state: State, n: Count) -> Array:
    root: Array = np.sqrt(state[0])
    return root


def _mean(state: State, n: Count) -> Array:
    return state[0] / state[0].real.dtype.type(n)  # type: ignore[no-any-return]


def power_sum(exponent: float) -> Reducer:
    """The sum of |x| ** exponent."""

    def term(block: Array, out: Array) -> None:
        np.absolute(block, out=out)
        np.power(out, out.dtype.type(exponent), out=out)

    return _of_sum(f"power_sum({exponent})", term)


SUM: Final = _of_sum("sum", None)
MEAN: Final = _of_sum("mean", None, _mean, math.nan)
SUM_ABS: Final = _of_sum("sum_abs", np.absolute)
NORM: Final = _of_sum("norm", _abs_squared, _root)
PROD: Final = _of_ufunc("prod", np.multiply, 1)
XOR: Final = _of_ufunc("xor", np.bitwise_xor, 0)
AMAX: Final = _extreme("amax", np.maximum)
AMIN: Final = _extreme("amin", np.minimum)


def _first_count(block: Array, start: int) -> State:
    if block.shape[0] == block.shape[2] == 1:
        return (np.array([[bare.count_nonzero(block)]], np.int64),)
    return (np.add.reduce(block != 0, axis=1, dtype=np.int64),)


COUNT_NONZERO: Final = Reducer("count_nonzero", _first_count, merge_sums, _only, 0)


def _first_truth(ufunc: np.ufunc) -> Callable[[Array, int], State]:
    return lambda block, start: (ufunc.reduce(block != 0, axis=1),)


ALL: Final = Reducer(
    "all",
    _first_truth(np.logical_and),
    lambda one, n, other, m: (np.logical_and(one[0], other[0]),),
    _only,
    True,
)
ANY: Final = Reducer(
    "any",
    _first_truth(np.logical_or),
    lambda one, n, other, m: (np.logical_or(one[0], other[0]),),
    _only,
    False,
)


# -- mean and variance: Chan, Golub, LeVeque (1983) ------------------------------------------------


_LEAST: Final = 1e-30
_MOST: Final = 1e38
_BRIEF: Final = 1 << 13  # elements of which an array of its own costs less than scratch memory


def _first_moments(block: Array, start: int) -> State:
    state = _moments(block)
    if block.real.dtype.itemsize < 8 and not in_range(state[1]):  # PyTorch's are in float64
        return _moments(block.astype(bare.result_type(block.dtype, np.float64)))
    return state


def is_in_range(squares: float) -> bool:
    """Whether a sum of squares in float32 is neither too large nor so small that bits are lost."""
    return _LEAST < squares < _MOST


def in_range(squares: Array) -> bool:
    """Whether all of them are."""
    if not squares.size:
        return True
    least, most = squares.item(squares.argmin()), squares.item(squares.argmax())  # by places: soon
    return is_in_range(least) and is_in_range(most)


def _moments(block: Array) -> State:
    if (loops := _looping(block)) is not None:
        rows = np.ascontiguousarray(block.reshape(len(block), -1))
        mean = looped_sums(loops, rows, 1, 1)
        np.divide(mean, bare.number(block.shape[1], block.dtype), out=mean)
        return mean, looped_sums(loops, rows, 1, 1, True, mean.reshape(-1))
    if block.size <= _BRIEF and block.dtype.kind == "f":
        mean = np.divide(add_up(block), bare.number(block.shape[1], block.dtype))
        if len(block) == 1:  # NumPy takes longer for a dim more
            apart = np.subtract(block[0], mean, order="C")[None]
        else:
            apart = np.subtract(block, mean[:, None, :], order="C")
        return mean, add_up(np.square(apart, out=apart))
    mean = add_up(block) / block.real.dtype.type(block.shape[1])
    flat = take(block.size, block.dtype)
    apart = np.subtract(block, mean[:, None, :], out=flat.reshape(block.shape))
    if block.dtype.kind == "c":
        squares = _sum_of(_abs_squared, apart)
    else:
        squares = add_up(np.square(apart, out=apart))
    give(flat)
    return mean, squares


def _merge_moments(one: State, n: Count, other: State, m: Count) -> State:
    mean, squares = map(in_double, one)
    delta = in_double(other[0]) - mean
    part = m / (n + m)
    return (
        mean + delta * part,
        squares + in_double(other[1]) + np.square(np.absolute(delta)) * (n * part),
    )


def _over_degrees(squares: Array, n: Count, correction: float) -> Array:
    variance: Array = squares / squares.dtype.type(max(n - correction, 0))
    return variance


@lru_cache
def var(correction: float = 1) -> Reducer:
    """The variance with n - correction degrees of freedom (nan or inf where there are none)."""

    def value(state: State, n: Count) -> Array:
        return _over_degrees(state[1], n, correction)

    name = f"var({correction})"
    return Reducer(name, _first_moments, _merge_moments, value, math.nan, sums=True)


@lru_cache
def std(correction: float = 1) -> Reducer:
    """The square root of `var`."""

    def value(state: State, n: Count) -> Array:
        variance = _over_degrees(state[1], n, correction)
        return np.sqrt(variance, out=variance)

    name = f"std({correction})"
    return Reducer(name, _first_moments, _merge_moments, value, math.nan, sums=True)


# -- positions -------------------------------------------------------------------------------------


def _first_place(find: Callable[..., Array]) -> Callable[[Array, int], State]:
    def first(block: Array, start: int) -> State:
        place = find(block, 1)
        groups, _, columns = block.shape
        value = block[np.arange(groups)[:, None], place, np.arange(columns)]
        return value, place + start

    return first


def _merge_places(beats: np.ufunc) -> Callable[[State, Count, State, Count], State]:
    def merge(one: State, n: Count, other: State, m: Count) -> State:
        better = beats(other[0], one[0]) | ((other[0] != other[0]) & (one[0] == one[0]))
        return bare.where(better, other[0], one[0]), bare.where(better, other[1], one[1])

    return merge


def _place(state: State, n: Count) -> Array:
    return state[1]


ARGMAX: Final = Reducer(
    "argmax", _first_place(np.argmax), _merge_places(np.greater), _place, places=True
)
ARGMIN: Final = Reducer(
    "argmin", _first_place(np.argmin), _merge_places(np.less), _place, places=True
)


# -- log of the sum of exponentials ----------------------------------------------------------------


def _finite(top: Array) -> Array:
    """What is subtracted: the maximum, or 0 where inf - inf would make a nan."""
    return bare.where(np.isfinite(top), top, top.dtype.type(0))


def _first_logsumexp(block: Array, start: int) -> State:
    top = np.maximum.reduce(block, axis=1)

    def term(block: Array, out: Array) -> None:
        bare.exp(np.subtract(block, _finite(top)[:, None, :], out=out), out=out)

    return top, _sum_of(term, block)


def _merge_logsumexp(one: State, n: Count, other: State, m: Count) -> State:
    top = np.maximum(in_double(one[0]), in_double(other[0]))
    base = _finite(top)
    return top, sum(
        (
            in_double(total) * bare.exp(_finite(in_double(high)) - base)
            for high, total in (one, other)
        ),
        start=np.zeros_like(top),
    )


def _log_of_sum(state: State, n: Count) -> Array:
    top, total = state
    return np.log(total) + _finite(top)


LOGSUMEXP: Final = Reducer("logsumexp", _first_logsumexp, _merge_logsumexp, _log_of_sum, -math.inf)
