"""Functions of a float32 number, and their gradients, by oneDNN (`onednn`), where it is installed.

NumPy composes them of fifteen passes; PyTorch has them from oneDNN too, so bits are PyTorch's.
Primitives are for runs of powers of two, so that few serve arrays of any length, and for what is
left of whole vectors; what is left besides, and what has gaps, goes through scratch memory. A
number's bits don't depend on where it stands.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping
from skimp._kernels.onednn import GELU, GELU_TANH
from skimp._kernels.onednn_runs import Runs, together
from skimp._kernels.scratch import Scratch
from skimp._kernels.threads import Call

__all__ = ["GELU", "GELU_TANH", "backward", "calls", "forward"]

Array = np.ndarray[Any, Any]

_SHORTEST: Final = 1 << 9  # elements of a run
_LONGEST: Final = 1 << 17
_SHARED: Final = 1 << 16  # elements of a run that a team shares
_LANES: Final = 16  # of a vector: runs of whole ones have the same bits, however long
_TYPE: Final = np.dtype(np.float32)
_NUMBERS: Final = ((onednn.FROM, onednn.TO), (onednn.FROM, onednn.GIVEN, onednn.ASKED))


def forward(function: int, x: Array, out: Array) -> bool:
    """out = function(x); whether oneDNN makes it, which types and the library alone say."""
    return _made(function, (x,), out)


def backward(function: int, g: Array, x: Array, out: Array) -> bool:
    """out = g function'(x)."""
    return _made(function, (x, g), out)


def _made(function: int, given: tuple[Array, ...], out: Array) -> bool:
    arrays: list[Any] = [*given, out]
    dense = True
    for a in arrays:
        if a.dtype != _TYPE:
            return False
        # NumPy's scalars have no memory that lasts
        dense = dense and isinstance(a, np.ndarray) and a.flags.c_contiguous
        dense = dense and a.shape == out.shape
    if onednn.library() is None:
        return False
    if dense:
        _row(function, arrays)
    else:
        with Scratch((len(arrays), out.size), _TYPE) as rows:
            for row, array in zip(rows, given, strict=False):
                row.reshape(out.shape)[...] = array
            _row(function, list(rows))
            out[...] = rows[-1].reshape(out.shape)
    return True


def calls(function: int, given: tuple[Array, ...], out: Array) -> list[Call]:
    """What `forward` or, of (x, g), `backward` does, as calls of C that are still to be made; out
    may be one of what they read. None where they are not dense, or some vectors not whole, or only
    some runs shared.
    """
    for a in (*given, out):
        if a.dtype != _TYPE or not a.flags.c_contiguous or a.shape != out.shape:
            return []
    parts, left = _cut(out.size)
    if left % _LANES or not parts or onednn.library() is None:
        return []
    team = together(True) if parts[0][0] >= _SHARED else 1
    if left:
        parts = (*parts, (left, (out.size - left) * _TYPE.itemsize))
    if team > 1 and parts[-1][0] < _SHARED:
        return []
    addresses = shaping.addresses(*given, out)
    found: list[Call] = []
    for run, down in parts:
        runs = _runs(function, run, len(addresses), team)
        found += runs.calls(list(map(down.__add__, addresses)), team)
    return found


def _row(function: int, arrays: list[Array]) -> None:
    addresses = shaping.addresses(*arrays)
    parts, left = _cut(arrays[-1].size)
    done, team = arrays[-1].size - left, 0
    for run, down in parts:  # the longest first
        team = 1 if run < _SHARED else team or together(True)
        _runs(function, run, len(arrays), team).make(list(map(down.__add__, addresses)), team)
    if left and not left % _LANES:
        _runs(function, left, len(arrays), 1).make([at + done * _TYPE.itemsize for at in addresses])
    elif left:
        rows = [a.reshape(-1) for a in arrays]
        with Scratch((len(rows), _SHORTEST), _TYPE) as ends:
            ends[:-1] = 0
            for end, row in zip(ends[:-1], rows, strict=False):
                end[:left] = row[done:]
            step = ends.strides[0]
            _runs(function, _SHORTEST, len(rows), 1).make(
                [shaping.address(ends) + i * step for i in range(len(rows))]
            )
            rows[-1][done:] = ends[-1, :left]


@lru_cache(256)
def _cut(length: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """The runs that so many elements are made in, and where each begins, in bytes; and how many
    are left at the end."""
    parts, done = [], 0
    while length - done >= _SHORTEST:
        run = min(1 << ((length - done).bit_length() - 1), _LONGEST)
        parts.append((run, done * _TYPE.itemsize))
        done += run
    return tuple(parts), length - done


@lru_cache(128)
def _runs(function: int, length: int, arrays: int, team: int) -> Runs:
    row = onednn.layout((length,), (1,))
    if team > 1:  # now: what is made when a team rests would be memory that comes late
        _runs(function, length, arrays, 1)
    with onednn.team(team):  # a gradient is shared by those for whom it is made, or not at all
        primitive = onednn.elementwise(function, row, arrays > len(_NUMBERS))
    return Runs(primitive, dict.fromkeys(_NUMBERS[arrays - 2], row))
