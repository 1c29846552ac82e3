"""The requests behind collectives on arrays: of MPI, or for many bytes on one host direct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skimp._engine.tensor import dtypes
from skimp.distributed import direct, mpi
from skimp.distributed.reduce_ops import ReduceOp

Array = np.ndarray[Any, Any]


def _directly(group: Any, array: Array) -> bool:
    return sends_apart(group, array.nbytes)


def sends_apart(group: Any, nbytes: int) -> bool:
    """Whether arrays that have so many bytes together are combined from where each lies."""
    return nbytes >= direct.LARGE and group.processes is not None


def all_reduce_apart(
    group: Any, arrays: Sequence[Array], dtype: dtypes.dtype, op: ReduceOp, factor: float | None
) -> Any:
    """Combine the ranks' arrays, multiplied by a factor, each in place, where `sends_apart`."""
    return direct.all_reduce(group, arrays, dtype, op, factor)


def all_reduce(group: Any, array: Array, dtype: dtypes.dtype, op: ReduceOp) -> Any:
    """Combine the ranks' arrays, in place."""
    if _directly(group, array):
        return direct.all_reduce(group, [array], dtype, op)
    ours, how = mpi.buffer(array, dtype), mpi.operation(op, dtype)
    return group.comm.Iallreduce(mpi.load().IN_PLACE, ours, how)


def broadcast(group: Any, array: Array, dtype: dtypes.dtype, source: int) -> Any:
    """The array of one rank goes to all."""
    if _directly(group, array):
        return direct.broadcast(group, array.reshape(-1), source)
    return group.comm.Ibcast(mpi.buffer(array, dtype), source)


def all_gather(
    group: Any, given: Array, target: Array, dtype: dtypes.dtype, counts: Sequence[int]
) -> Any:
    """Each rank's array, of `counts` elements, to all: one after another in `target`."""
    flat, start = target.reshape(-1), sum(counts[: group.rank()])
    mine = flat[start : start + counts[group.rank()]]
    in_place = mine.size and given.__array_interface__["data"] == mine.__array_interface__["data"]
    if _directly(group, target):
        if not in_place:
            mine[...] = given.reshape(-1)
        return direct.all_gather(group, target, counts)
    if not in_place and np.may_share_memory(given, target):
        given = given.copy()  # MPI allows no overlap
    ours = mpi.load().IN_PLACE if in_place else mpi.buffer(given, dtype)
    theirs = mpi.buffer(target, dtype)
    if len(set(counts)) == 1:
        return group.comm.Iallgather(ours, theirs)
    return group.comm.Iallgatherv(ours, [theirs[0], counts, theirs[1]])


def reduce_scatter(
    group: Any,
    given: Array,
    target: Array,
    dtype: dtypes.dtype,
    op: ReduceOp,
    counts: Sequence[int],
) -> Any:
    """Combine the ranks' arrays; rank i gets the i-th part, of `counts[i]` elements."""
    if np.may_share_memory(given, target):
        given = given.copy()
    if _directly(group, given):
        return direct.reduce_scatter(group, given, target, counts, dtype, op)
    ours, theirs, how = (
        mpi.buffer(given, dtype),
        mpi.buffer(target, dtype),
        mpi.operation(op, dtype),
    )
    return group.comm.Ireduce_scatter(ours, theirs, counts, how)
