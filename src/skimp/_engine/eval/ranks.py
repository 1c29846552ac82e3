"""Sorting rows, the NumPy side: a value and its position as one integer, so that one sort of
integers orders both.

For types of up to 4 bytes the key is the value, mapped to an unsigned integer of the same order,
above its position: NumPy sorts those several times faster than it argsorts, ties stay in their
first order, and the keys are built and sorted where the positions will be. NaN comes last, as in
PyTorch, and -0 equals 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.eval.expr import Array
from skimp._engine.eval.positions import bits, boxes, in_boxes
from skimp._kernels import bare, shaping

_TOP = np.uint32(0x80000000)
_BLOCK = 1 << 16
_FEW = 512  # elements that are sorted as they are
_LONG = 1 << 10  # elements of rows from which a bound spares more than it takes
_PIECES = 4  # of a row, for each of those that are looked for


def packs(dtype: np.dtype[Any], n: int) -> bool:
    """Whether rows of n elements of this type are sorted by such keys."""
    return dtype.itemsize <= 4 and n < 1 << 32


def key_of(a: Array) -> Array:
    """The values as uint32 of the same order."""
    if a.dtype.kind in "bu":
        return a.astype(np.uint32)
    if a.dtype.kind == "i":
        return a.astype(np.int32).view(np.uint32) ^ _TOP
    wide = a.astype(np.float32) + np.float32(0)  # makes -0 and 0 the same bits
    key = wide.view(np.uint32)
    key = key ^ bare.where(key & _TOP, np.uint32(0xFFFFFFFF), _TOP)
    key[np.isnan(wide)] = 0xFFFFFFFF
    return key


def fill_keys(keys: Array, a: Array, descending: bool) -> None:
    """Keys (rows, n) of values (rows, n)."""
    for row, cut in boxes(a.shape, _BLOCK):
        own = key_of(a[row, cut])
        if descending:
            np.invert(own, out=own)
        block = keys[row, cut]
        np.left_shift(own, np.uint64(32), out=block, dtype=np.uint64)
        block |= np.arange(cut.start, cut.start + block.shape[1], dtype=np.uint64)


def order(a: Array, descending: bool, into: Array) -> None:
    """The positions, in order, of each row of `a` (rows, n), written to an int64 array of its
    shape.
    """
    if not packs(a.dtype, a.shape[1]):
        into[...] = _argsort(a, descending)
        return
    keys = into.view(np.uint64) if into.flags.c_contiguous else np.empty(a.shape, np.uint64)
    fill_keys(keys, a, descending)
    keys.sort(axis=-1)
    np.bitwise_and(keys, np.uint64(0xFFFFFFFF), out=keys)
    if not into.flags.c_contiguous:
        into[...] = keys.view(np.int64)


def _argsort(a: Array, descending: bool) -> Array:
    if not descending:
        return np.argsort(a, axis=-1, kind="stable")
    found = np.argsort(a[:, ::-1], axis=-1, kind="stable")[
        :, ::-1
    ]  # reversed twice: ties keep their order
    positions: Array = np.subtract(a.shape[1] - 1, found)
    return positions


def best(a: Array, k: int, largest: bool) -> Array:
    """The positions of the k largest or smallest of each row, in order."""
    if is_bounded(a.dtype, a.shape[1], k):
        rows = [_beyond_bound(row, k, largest) for row in a]
        if len(found := [row for row in rows if row is not None]) == len(rows):
            return np.stack(found)
    if not packs(a.dtype, a.shape[1]):
        return _argsort(a, largest)[:, :k]
    keys = np.empty(a.shape, np.uint64)
    fill_keys(keys, a, largest)
    if 0 < k < a.shape[1]:
        keys.partition(k - 1, axis=-1)
    keys = np.sort(keys[:, :k], axis=-1)
    return (keys & np.uint64(0xFFFFFFFF)).view(np.int64)


def is_bounded(dtype: np.dtype[Any], n: int, k: int) -> bool:
    """Whether k of a row of n are looked for among those beyond a bound."""
    return n >= max(_LONG, _PIECES * 2 * k) and k > 0 and (dtype.kind in "iu" or dtype.char in "fd")


def _beyond_bound(row: Array, k: int, largest: bool) -> Array | None:
    """`best` of one long row. The k-th largest of the largest of its pieces, each of which is one
    of the row, bounds what is found from below; few others are above it. None where many are equal,
    or one is NaN.
    """
    pieces = _PIECES * k
    whole = row.size - row.size % pieces
    most = np.maximum.reduce if largest else np.minimum.reduce
    ends = most(row[:whole].reshape(-1, pieces), axis=0)
    if whole < row.size:
        ends = np.append(ends, most(row[whole:]))
    ends.sort()
    if ends[-1] != ends[-1]:
        return None
    at = (row >= ends[-k] if largest else row <= ends[k - 1]).nonzero()[0]
    if len(at) > row.size // 4:
        return None
    few = row[at][None]
    order = _argsort(few, largest)[0, :k] if len(at) <= _FEW else best(few, k, largest)[0]
    return at[order]  # type: ignore[no-any-return]


def kth(a: Array, k: int) -> Array:
    """The position of the k-th smallest (from 0) of each row."""
    if not packs(a.dtype, a.shape[1]):
        return np.argpartition(a, k, axis=-1)[:, k]
    keys = np.empty(a.shape, np.uint64)
    fill_keys(keys, a, False)
    keys.partition(k, axis=-1)
    return (keys[:, k] & np.uint64(0xFFFFFFFF)).view(np.int64)


def taken(a: Array, at: Array) -> Array:
    """The values of each row at these positions of it."""
    return shaping.along(bits(a), at, -1)


def by_rows(shape: tuple[int, ...], n: int, work: Any) -> None:
    """`work(box)` for boxes of the dims before the rows, each of about as many elements as
    fit the cache.
    """
    in_boxes(shape, work, max(1, _BLOCK // max(1, n)))
