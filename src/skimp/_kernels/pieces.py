"""Passes over arrays a piece at a time, in scratch memory, where they lie in one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels.scratch import rooms, take

Array = np.ndarray[Any, Any]

_BYTE: Final = np.dtype(np.uint8)


def rooms_of(arrays: Sequence[Array], length: int, *dtypes: np.dtype[Any]) -> list[Array]:
    """Scratch memory of each type for pieces of the arrays, in one buffer, to be given back as the
    first is: shorter where there is no room, if can be. Types come by their size, largest first."""
    size, each = arrays[-1].size, _together(dtypes)
    if _lie_in_a_run(arrays):
        (room,) = rooms(min(size, length), each)
    else:
        room = take(size, each)
    count, start, found = room.size, 0, []
    flat = room.view(_BYTE)
    for dtype in dtypes:
        end = start + count * dtype.itemsize
        found.append(flat[start:end].view(dtype))
        start = end
    return found


@lru_cache
def _together(dtypes: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    """What takes as much room as an element of each."""
    return np.dtype((np.void, sum([dtype.itemsize for dtype in dtypes])))


def _lie_in_a_run(arrays: Sequence[Array]) -> bool:
    shape = arrays[-1].shape
    for a in arrays:  # noqa: SIM110  # a comprehension is a call
        if getattr(a, "shape", ()) != shape or not a.flags.c_contiguous:
            return False
    return True


def in_pieces(*arrays: Array, length: int) -> Iterator[tuple[Array, ...]]:
    """The same elements of all arrays, `length` at a time where they lie in one run."""
    whole = arrays[-1]
    if whole.size <= length or not _lie_in_a_run(arrays):
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, whole.size, length):
        yield tuple([a[start : start + length] for a in flat])
