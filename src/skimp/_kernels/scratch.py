"""Memory that a thread uses over and over: registers, and temporaries of reductions.

A fresh array of a few hundred KiB costs ten times the work on it, since malloc takes its pages from
the system and gives them back each time. Buffers taken here stay with the thread: some MiB at most.
They are NumPy's, or of whoever counts them (`supply`), who may also have them back (`drop`), and
has none for who can do without where there is no room (`spare`), and refuses who has not begun to
write (`demand`).
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import bare
from skimp._kernels.bare import einsum

Array = np.ndarray[Any, Any]

_FEW: Final = 64  # rows up to which one call takes their largest where they lie
_MANY: Final = 256  # rows from which short ones, of up to so many elements, are turned
_SHORT: Final = 32
_LONG: Final = 1 << 12  # elements of a row up to which the place of the largest is found first
_PLACED: Final = 1 << 10  # and elements of one up to which that is so whatever is asked of it
_COUNTED: Final = 1 << 12  # rows whose beginnings are kept
RUN: Final = 1 << 13  # elements that NumPy reads at once of several rows
_SPREAD: Final = 1 << 13  # elements up to which a column is spread out beside its rows
_KEPT: Final = 16  # buffers
_LEAST: Final = 1 << 10  # elements of a piece, however little room there is
_LARGEST: Final = 1 << 22  # bytes of a buffer that is kept


class _Buffers(list[Array]):
    """What a thread has and does not use. Others may empty it at any time (`drop`)."""

    __slots__ = ("__weakref__",)


class _Mine(threading.local):
    def __init__(self) -> None:
        self.buffers = _Buffers()
        _of_threads[:] = [ref for ref in _of_threads if ref() is not None]
        _of_threads.append(weakref.ref(self.buffers))


_of_threads: Final[list[weakref.ref[_Buffers]]] = []
_mine = _Mine()


class Lender(NamedTuple):
    """Of new buffers of so many bytes: for who can do without, for who can't, and for who can't but
    may be refused, once there was none to spare."""

    spare: Callable[[int], Array | None]
    lend: Callable[[int], Array]
    demand: Callable[[int], Array]


def _of_numpy(nbytes: int) -> Array:
    return np.empty(nbytes, np.uint8)


_NUMPY: Final = Lender(_of_numpy, _of_numpy, _of_numpy)
_lender = _NUMPY


def supply(lender: Lender | None) -> None:
    """Have new buffers, which aren't NumPy's own then, of this one, on whichever thread asks; None:
    of NumPy."""
    global _lender
    _lender = lender or _NUMPY
    drop()


def drop() -> bool:
    """Give up all that no thread uses; whether there was anything."""
    lists = [buffers for ref in list(_of_threads) if (buffers := ref())]
    for buffers in lists:
        buffers.clear()
    return bool(lists)


def kept() -> int:
    """Bytes that threads have and do not use."""
    return sum([sum([b.nbytes for b in list(ref() or ())]) for ref in list(_of_threads)])


def take(length: int, dtype: np.dtype[Any]) -> Array:
    """A 1-d array of `length` elements, uninitialised, the caller's until it is given back."""
    nbytes = length * dtype.itemsize
    found = _own(nbytes)
    if found is None:
        found = _lender.lend(max(nbytes, 1))
    return found[:nbytes].view(dtype)


def spare(length: int, dtype: np.dtype[Any]) -> Array | None:
    """`take`, for who can do without: None where there is no room for it."""
    nbytes = length * dtype.itemsize
    found = _own(nbytes)
    if found is None:
        found = _lender.spare(max(nbytes, 1))
    return None if found is None else found[:nbytes].view(dtype)


def spares(wanted: Iterable[tuple[int, np.dtype[Any]]]) -> list[Array] | None:
    """`spare` of several, by lengths and types; None, and nothing of it, where there is no room for
    all of them."""
    found: list[Array] = []
    for length, dtype in wanted:
        room = spare(length, dtype)
        if room is None:
            return None  # what was found goes: smaller ones may find room in its place
        found.append(room)
    return found


def rooms(length: int, *dtypes: np.dtype[Any]) -> list[Array]:
    """An array of each type, of `length` elements, for who works in pieces of any length: of fewer
    where there is no room for so many."""
    while length > _LEAST:
        found = spares([(length, dtype) for dtype in dtypes])
        if found is not None:
            return found
        length = max(length // 4, _LEAST)
    return [take(length, dtype) for dtype in dtypes]


def demand(length: int, dtype: np.dtype[Any]) -> Array:
    """`take`, for who has written nothing yet. OutOfMemoryError: there is no room."""
    found = spare(length, dtype)
    if found is None:
        nbytes = length * dtype.itemsize
        found = _lender.demand(max(nbytes, 1))[:nbytes].view(dtype)
    return found


def _own(nbytes: int) -> Array | None:
    """The shortest of this thread's buffers that is so long; where there is none the longest goes,
    since a new one takes its place."""
    buffers = _mine.buffers
    while True:
        best = shortest = -1
        for number, buffer in enumerate(buffers):
            if buffer.nbytes >= nbytes and (best < 0 or buffer.nbytes < shortest):
                best, shortest = number, buffer.nbytes
        if best < 0:
            break
        try:
            buffer = buffers.pop(best)
        except IndexError:  # they were dropped meanwhile
            continue
        if buffer.nbytes >= nbytes:
            return buffer
    with contextlib.suppress(IndexError, ValueError):  # they were dropped meanwhile
        del buffers[max(range(len(buffers)), key=lambda number: buffers[number].nbytes)]
    return None


def give(array: Array) -> None:
    """Give back what `take` returned. After an exception nobody need: it only saves time."""
    buffer, buffers = array.base, _mine.buffers
    if buffer is not None and _is_kept(buffer, buffers):
        buffers.append(buffer)


def giving(array: Array) -> list[tuple[Any, ...]]:
    """`give`, as a call of C that is still to be made, by this thread; none if it is not kept."""
    buffer, buffers = array.base, _mine.buffers
    return [(buffers.append, buffer)] if _is_kept(buffer, buffers) else []


def _is_kept(buffer: Any, buffers: _Buffers) -> bool:
    return (
        isinstance(buffer, np.ndarray)
        and buffer.nbytes <= _LARGEST
        and len(buffers) < _KEPT
        and (buffer.base is None) is (_lender is _NUMPY)  # it is of where new ones are from
    )


class Scratch:
    """A block of scratch memory of a shape, given back on leaving."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._flat = take(math.prod(shape), np.dtype(dtype))
        self._array = self._flat.reshape(shape)

    def __enter__(self) -> Array:
        return self._array

    def __exit__(self, *_: Any) -> None:
        give(self._flat)


def working(out: Array, dtype: Any) -> contextlib.AbstractContextManager[Array]:
    """Where a result is worked on in this type: `out`, or scratch memory if it has another."""
    return contextlib.nullcontext(out) if out.dtype == dtype else Scratch(out.shape, dtype)


def row_sums(x: Array) -> Array:
    """The sum of each row, in a column, by einsum: as fast as BLAS's dot with ones, a third of the
    time of NumPy's sum, and unlike the former it lets other threads run.

    Of one row einsum makes one run, of several it reads runs of `RUN`: long rows are cut so by
    themselves, and the sum of a row does not depend on how many there are.
    """
    if x.ndim != 2 or x.dtype.char not in "fd" or x.strides[1] != x.itemsize:
        kept: Array = np.add.reduce(x, axis=1, keepdims=True)
        return kept
    return dense_row_sums(x)


def dense_row_sums(x: Array) -> Array:
    """`row_sums` of float32 or float64 rows that have no gaps."""
    length = x.shape[1]
    if length <= RUN:
        found: Array = einsum("ij->i", x)[:, None]
        return found
    whole = length - length % RUN
    runs = einsum("ijk->ij", x[:, :whole].reshape(len(x), -1, RUN))
    total: Array = np.add.reduce(runs, axis=1, keepdims=True)
    if whole < length:
        total += einsum("ij->i", x[:, whole:])[:, None]
    return total


def row_sum(row: Array) -> Any:
    """`row_sums` of one row of float32 or float64, without gaps: a number."""
    if row.size <= RUN:
        return einsum("i->", row)
    whole = row.size - row.size % RUN
    runs = einsum("ij->i", row[:whole].reshape(-1, RUN))
    total = np.add.reduce(runs) if len(runs) > 1 else runs[0]
    return total + einsum("i->", row[whole:]) if whole < row.size else total


def row_product(a: Array, b: Array) -> Any:
    """`row_products` of one row: a number."""
    if a.dtype.itemsize < 8 or a.size <= RUN:
        return np.vecdot(a, b)
    return row_products(a[None], b[None]).item()


def row_products(a: Array, b: Array) -> Array:
    """The sum of each row's products, in a column.

    OpenBLAS shares a dot product of more than 10,000 float64 among its threads, and then it is
    another sum: longer rows are cut.
    """
    length = a.shape[1]
    if a.dtype.itemsize < 8 or length <= RUN:
        found: Array = np.vecdot(a, b)[:, None]
        return found
    whole = length - length % RUN
    runs = np.vecdot(*[x[:, :whole].reshape(len(x), -1, RUN) for x in (a, b)])
    total: Array = np.add.reduce(runs, axis=1, keepdims=True)
    if whole < length:
        total += np.vecdot(a[:, whole:], b[:, whole:])[:, None]
    return total


def beside_rows(numbers: Array) -> Array:
    """A column of one number for each row, as ufuncs take it soonest beside the rows: that of one
    row without dims, which spares them an iterator.
    """
    return numbers.reshape(()) if numbers.size == 1 else numbers


def less_column(x: Array, column: Array, out: Array | None = None) -> Array:
    """x - column, row-major. Of few elements the column is spread out where the result is to lie
    (`out`, which is not `x`): an array of the rows' shape spares ufuncs an iterator, which takes
    longer than to write it.
    """
    if x.size > _SPREAD:
        return np.subtract(x, beside_rows(column), out=out, order="C")
    if out is None:
        out = column.repeat(x.shape[1], 1)
    else:
        out[...] = column
    return bare.subtract(x, out, out=out)


def over_column(x: Array, column: Array, out: Array) -> None:
    """x / column, with a number for each of the last dim's rows, which `less_column` says of."""
    if x.size <= _SPREAD:
        column = column.repeat(x.shape[-1], -1)
    np.divide(x, column, out=out, casting="same_kind")


def row_tops(x: Array) -> Array:
    """The largest of each row (of dim 1), in a column. NumPy's reduction takes 50 to 100 ns for
    each row. Few rows are parts of one flat reduction, which takes half as long to begin; of more,
    places are found in a fifth of the time; many short rows are turned first: a tenth for rows of
    ten.
    """
    rows, length = x.shape[:2]
    if x.ndim > 2 or not 0 < length <= _LONG or x.dtype.char not in "fd":
        found: Array = np.maximum.reduce(x, axis=1, keepdims=True)
        return found
    if rows <= _FEW:
        return _few_tops(x)
    if rows < _MANY or length > _SHORT:
        at = x.argmax(1)
        at += starts(rows, length) if rows <= _COUNTED else np.arange(rows) * length
        return x.reshape(-1).take(at)[:, None]  # type: ignore[no-any-return]
    with Scratch((length, rows), x.dtype) as turned:
        turned[...] = x.T
        return np.maximum.reduce(turned, axis=0)[:, None]  # type: ignore[no-any-return]


def dense_row_tops(x: Array) -> Array:
    """`row_tops` of float32 or float64 rows that have no gaps."""
    return _few_tops(x) if len(x) <= _FEW else row_tops(x)


def _few_tops(x: Array) -> Array:
    found: Array = np.maximum.reduceat(x.ravel(), starts(*x.shape))
    return found[:, None]


def row_extremes(ufunc: np.ufunc, x: Array) -> Array:
    """`ufunc.reduce`, of maximum or minimum, of each row of (rows, length): by places as above, the
    first of equal ones. What is taken is up to the length and the type alone, so that zeros of two
    signs give the same one in however many rows.
    """
    rows, length = x.shape
    if not 1 < length <= _PLACED or x.dtype.char not in "fd":
        return ufunc.reduce(x, axis=1)  # type: ignore[no-any-return]
    if rows > _COUNTED:
        found = np.empty(rows, x.dtype)
        for i in range(0, rows, _COUNTED):
            found[i : i + _COUNTED] = row_extremes(ufunc, x[i : i + _COUNTED])
        return found
    at = x.argmax(1) if ufunc is np.maximum else x.argmin(1)
    if rows > 1:
        at += starts(rows, length)
    return x.reshape(-1).take(at)  # type: ignore[no-any-return]


@lru_cache(64)
def starts(rows: int, length: int) -> Array:
    """Where each row begins."""
    return np.arange(rows) * length
