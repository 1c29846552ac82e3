"""Large collectives between ranks of one host: each reads the others' bytes where they lie, and
MPI carries only the words about it. A sum of 100 MB so moves each byte once, where a pipe of shared
memory moves it twice and hands a core over for each of its cells.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skimp._engine.tensor import dtypes
from skimp.distributed import mpi
from skimp.distributed.errors import DistBackendError
from skimp.distributed.reduce_ops import ReduceOp

Array = np.ndarray[Any, Any]
LARGE = mpi.CELL - 1024  # bytes that no cell takes, which has some of MPICH's own beside them
BLOCK = 1 << 18  # bytes that are read and combined at once: what stays in the cache
_READABLE = 0x59616D61  # PR_SET_PTRACER: who may read; needed where a parent only may (Yama)
_TAGS = 1 << 20  # as many of the largest are ours; three for each collective


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


@cache
def _reader() -> Any:
    """Linux's call that copies from another process; None elsewhere."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if found is not None:
        span = ctypes.POINTER(_Span)
        found.argtypes = (ctypes.c_int, span, ctypes.c_ulong, span, ctypes.c_ulong, ctypes.c_ulong)
        found.restype = ctypes.c_ssize_t
    return found


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _read(process: int, source: int, target: int, size: int) -> bool:
    """Copy bytes from another process; false if it is not there (any more)."""
    while size:
        ours, theirs = _Span(target, size), _Span(source, size)
        n = _reader()(process, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if n <= 0:
            return False
        source, target, size = source + n, target + n, size - n
    return True


# -- who can be read ------------------------------------------------------------------------------


class Neighbour(NamedTuple):
    """A rank: its process, and the ranks whose bytes it can read."""

    process: int
    reads: frozenset[int]


def neighbours(comm: Any) -> list[Neighbour]:
    """Each rank of a job tries to read from each of its host; what came of it, by rank."""
    _let_read()
    probe = np.array([os.getpid()], np.int64)
    every = comm.allgather((_host(), os.getpid(), probe.ctypes.data))
    found = np.zeros(1, np.int64)
    reads = [
        rank
        for rank, (host, process, address) in enumerate(every)
        if host == _host()
        and _reader() is not None
        and _read(process, address, found.ctypes.data, 8)
        and found[0] == process
    ]
    lists = comm.allgather(reads)  # and nobody's probe has gone before
    return [Neighbour(p, frozenset(r)) for (_, p, _), r in zip(every, lists, strict=True)]


def processes(found: Sequence[Neighbour], ranks: Sequence[int]) -> list[int] | None:
    """The processes of a group's ranks, if there are two and each can read all; or None."""
    group = frozenset(ranks)
    if len(group) < 2 or not all([found[r].reads >= group for r in group]):
        return None
    return [found[r].process for r in ranks]


def _host() -> tuple[str, str, str]:
    """What two processes share that can name each other by number."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = Path("/proc/self/ns/pid")
    return (
        socket.gethostname(),
        boot.read_text() if boot.exists() else "",
        os.readlink(space) if space.exists() else "",
    )


def _let_read() -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() == "1":
        everyone = ctypes.c_ulong(-1)  # of the same user
        ctypes.CDLL(None).prctl(_READABLE, everyone, 0, 0, 0)


# -- a collective, step by step -------------------------------------------------------------------


class Stepwise:
    """A request like MPI's, of requests that come one after another: each is started when the one
    before is done.
    """

    def __init__(self, steps: Iterator[Any]) -> None:
        self._steps = steps
        self._now = next(steps, None)

    def Test(self) -> bool:
        """Whether all are done; asking moves them on."""
        while self._now is not None:
            if not self._now.Test():
                return False
            self._now = next(self._steps, None)
        return True


class _Never:
    """What a rank that has gone would answer: who waits finds out by itself."""

    def Test(self) -> bool:
        return False


class _Meeting:
    """What the ranks tell each other in one collective: how many bytes they bring, and where a
    table of the addresses of these lies.
    """

    def __init__(self, group: Any, pieces: Sequence[Array]) -> None:
        self._group, self._comm = group, group.comm
        self.rank, self.others = group.rank(), [r for r in range(group.size()) if r != group.rank()]
        self._tag = _first_tag() + group.sequence * 3 % _TAGS
        self._table = np.array([_address(piece) for piece in pieces], np.int64)
        nbytes = sum([piece.nbytes for piece in pieces])
        self._mine = np.array([_address(self._table), len(pieces), nbytes], np.int64)
        self._every = np.zeros((group.size(), 3), np.int64)
        self._tables: dict[int, Array] = {}

    def begin(self) -> Iterator[Any]:
        """All have come, and know each other's addresses."""
        yield from self._exchange(0)
        theirs = self._every[self.others]
        sizes = {*theirs[:, 2].tolist(), int(self._mine[2])}
        if len(sizes) > 1:
            raise DistBackendError(f"ranks give other numbers of bytes: {sorted(sizes)}")
        if (theirs[:, 1] != self._mine[1]).any():
            counts = sorted({*theirs[:, 1].tolist(), int(self._mine[1])})
            raise DistBackendError(f"ranks give other numbers of tensors: {counts}")
        for rank in self.others:
            table = self._tables[rank] = np.empty_like(self._table)
            yield from self._copied(rank, int(self._every[rank, 0]), table)

    def done(self, step: int) -> Iterator[Any]:
        """All have done what comes before `step`."""
        yield from self._exchange(step)

    def _exchange(self, step: int) -> Iterator[Any]:
        tag, comm = self._tag + step, self._comm
        requests = [comm.Irecv(self._every[r], r, tag) for r in self.others]
        requests += [comm.Isend(self._mine, r, tag) for r in self.others]
        yield from requests

    def read(self, rank: int, piece: int, start: int, target: Array) -> Iterator[Any]:
        """Bytes of a rank's piece, from `start` on, into an array."""
        return self._copied(rank, int(self._tables[rank][piece]) + start, target)

    def _copied(self, rank: int, source: int, target: Array) -> Iterator[Any]:
        if not _read(self._group.processes[rank], source, _address(target), target.nbytes):
            yield _Never()


@cache
def _first_tag() -> int:
    world = mpi.load()
    return int(world.COMM_WORLD.Get_attr(world.TAG_UB)) - _TAGS - 3


def _combine(op: ReduceOp, dtype: dtypes.dtype) -> Callable[[Array, Array], None]:
    """Combine elements into the second array, in float32 where these have fewer bits."""
    if dtype.is_floating_point and dtype.itemsize < 4:
        wide = mpi.in_float32(op)
        return lambda source, target: wide(target, source.astype(np.float32), out=target)
    ufunc = mpi.ufunc(op, dtype)
    if ufunc is not None:
        return lambda source, target: ufunc(target, source, out=target)
    how = mpi.operation(op, dtype)
    return lambda a, b: how.Reduce_local(mpi.buffer(a, dtype), mpi.buffer(b, dtype))


def _scale(array: Array, factor: float | None) -> None:
    """Multiply in place; what has less than 32 bits in float32, rounded once."""
    if factor is not None:
        wide = array.dtype.type if array.dtype.kind in "fc" and array.itemsize > 2 else np.float32
        np.multiply(array, wide(factor), out=array, casting="unsafe")


def _reduced(
    meeting: _Meeting,
    piece: int,
    target: Array,
    start: int,
    dtype: dtypes.dtype,
    op: ReduceOp,
    factor: float | None = None,
) -> Iterator[Any]:
    """The others' elements of a piece, from the `start`-th on, combined into ours; all are
    multiplied before. What has less than 32 bits is rounded once, after all.
    """
    width, combine = target.itemsize, _combine(op, dtype)
    narrow = dtype.is_floating_point and width < 4
    step = max(BLOCK // width, 1)
    scratch = np.empty(min(step, target.size), target.dtype)
    for at in range(0, target.size, step):
        ours = target[at : at + step]
        theirs = scratch[: ours.size]
        _scale(ours, factor)
        total = ours.astype(np.float32) if narrow else ours
        for rank in meeting.others:
            yield from meeting.read(rank, piece, (start + at) * width, theirs)
            _scale(theirs, factor)
            combine(theirs, total)
        if narrow:
            ours[...] = total


def _share(pieces: Sequence[Array], start: int, stop: int) -> Iterator[tuple[int, int, Array]]:
    """Of all elements in a row those from `start` to `stop`: by piece, from which of its own on,
    and they.
    """
    before = 0
    for number, piece in enumerate(pieces):
        first, last = max(start - before, 0), min(stop - before, piece.size)
        if first < last:
            yield number, first, piece[first:last]
        before += piece.size


def _from(rank: int, ranks: Sequence[int]) -> list[int]:
    """The ranks from the next one on, so that not all read from one."""
    return [r for r in ranks if r > rank] + [r for r in ranks if r < rank]


def _bounds(counts: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(counts).tolist()]


def all_reduce(
    group: Any,
    arrays: Sequence[Array],
    dtype: dtypes.dtype,
    op: ReduceOp,
    factor: float | None = None,
) -> Stepwise:
    """Each rank combines a part of all ranks' elements, and reads the other parts."""
    n, pieces = group.size(), [array.reshape(-1) for array in arrays]
    total = sum([piece.size for piece in pieces])
    at = [total * i // n for i in range(n + 1)]

    def steps() -> Iterator[Any]:
        meeting = _Meeting(group, pieces)
        r = meeting.rank
        yield from meeting.begin()
        for piece, start, ours in _share(pieces, at[r], at[r + 1]):
            yield from _reduced(meeting, piece, ours, start, dtype, op, factor)
        yield from meeting.done(1)
        for i in _from(r, meeting.others):
            for piece, start, target in _share(pieces, at[i], at[i + 1]):
                yield from meeting.read(i, piece, start * target.itemsize, target)
        yield from meeting.done(2)

    return Stepwise(steps())


def reduce_scatter(
    group: Any,
    given: Array,
    target: Array,
    counts: Sequence[int],
    dtype: dtypes.dtype,
    op: ReduceOp,
) -> Stepwise:
    """Each rank combines its part of all ranks' arrays; parts have `counts` elements."""
    flat, out, at = given.reshape(-1), target.reshape(-1), _bounds(counts)

    def steps() -> Iterator[Any]:
        meeting = _Meeting(group, [flat])
        r = meeting.rank
        yield from meeting.begin()
        out[...] = flat[at[r] : at[r + 1]]
        yield from _reduced(meeting, 0, out, at[r], dtype, op)
        yield from meeting.done(1)

    return Stepwise(steps())


def all_gather(group: Any, target: Array, counts: Sequence[int]) -> Stepwise:
    """Each rank has its part, of `counts` elements, where it belongs, and reads the others'."""
    flat, at = target.reshape(-1), _bounds(counts)

    def steps() -> Iterator[Any]:
        meeting = _Meeting(group, [flat])
        yield from meeting.begin()
        for i in _from(meeting.rank, meeting.others):
            yield from meeting.read(i, 0, at[i] * flat.itemsize, flat[at[i] : at[i + 1]])
        yield from meeting.done(1)

    return Stepwise(steps())


def broadcast(group: Any, array: Array, source: int) -> Stepwise:
    """All read what the source has."""

    def steps() -> Iterator[Any]:
        meeting = _Meeting(group, [array])
        yield from meeting.begin()
        if meeting.rank != source:
            yield from meeting.read(source, 0, 0, array)
        yield from meeting.done(1)

    return Stepwise(steps())
