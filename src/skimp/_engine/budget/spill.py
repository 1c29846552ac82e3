"""The spill file: bytes written away and read back.

One file, in a directory on a disk, unlinked as soon as it is open: whatever ends the process,
nothing stays behind. It is sparse where nothing was written, and what is freed is used again.

Writing goes to the system's page cache, at the speed of memory. So that this does not become a
second memory, a thread has what was written brought to the disk (`fdatasync`) once it is much or
old, and all but what was written last dropped from the cache (`posix_fadvise`); a writer who is too
far ahead of it waits. What is in the cache is read from there, and a place in it that is written
again takes nothing more.

Where the disk is full, the file does not grow, and tries to once a second. What was written before
has its place on the disk: what nobody has any more of that is joined, cut and used again.

A fork leaves both processes with places in one file. It is sealed then: nobody writes to it again,
so neither can change what the other still has to read, and each gets a file of its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Final

import numpy as np

from skimp._engine.budget import places
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.interrupts import WeakValues, finalizer
from skimp._kernels.threads import serving

Array = np.ndarray[Any, Any]

PAGE: Final = 4096
BEHIND: Final = 32 << 20  # bytes in the page cache from which half of them are brought to the disk
LATE: Final = 10.0  # seconds after which they are as well: what the disk did not take is told then
FAR_BEHIND: Final = 4 * BEHIND  # from which a writer waits for that
AHEAD: Final = 2  # places that are read ahead: what is in the page cache is no second memory
NEAR: Final = 32  # of the last written ones, among which they are looked for
AGAIN: Final = 1.0  # seconds after which a file that could not grow tries to
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # of errors: there is no room
_FIRST_RATE: Final = 200e6  # bytes a second that a disk is taken for until it was measured
_FORGET: Final = 0.8  # how much of what was measured before stays in a rate


class Place:
    """Some bytes in a file, until nobody has this."""

    __slots__ = ("__weakref__", "file", "nbytes", "number", "offset", "size", "waiting")

    def __init__(self, file: File, offset: int, size: int, nbytes: int) -> None:
        self.offset: Final = offset
        self.size = size  # with what rounding to pages adds; 0: the file ends before it
        self.file: Final = file
        self.nbytes: Final = nbytes
        self.number = 0  # how many were written before it
        self.waiting = True  # for somebody to want the bytes, which are nowhere else

    @finalizer
    @enters_uninterrupted
    def __del__(self) -> None:
        file = getattr(self, "file", None)  # none where its making was interrupted
        if file is not None and self.size:
            file.left.append((self.offset, self.size))

    def read(self, into: Array) -> None:
        """Read the bytes into a uint8 array of their number. OSError: the file can't be read."""
        self.file.read(self, into)

    def expect(self) -> None:
        """Have the system read it ahead, without waiting for that."""
        self.waiting = False
        if self.offset in self.file.cached:
            return
        ahead = self.file.ahead
        ahead[self.offset] = self.size
        if len(ahead) > NEAR:  # nobody has read the first one
            del ahead[next(iter(ahead))]
        with contextlib.suppress(OSError, AttributeError):
            os.posix_fadvise(self.file.fd, self.offset, self.size, os.POSIX_FADV_WILLNEED)


class File:
    """An open file without a name. Its methods are called under the storages' lock."""

    def __init__(self, directory: str) -> None:
        self.directory: Final = directory
        self.fd: Final = _open(directory)
        self.left: Final[deque[tuple[int, int]]] = deque()  # places that nobody has any more
        self._free: dict[int, list[int]] = {}  # offsets by size
        self.end = 0
        # in the order in which they were written, as which or against which they will be read
        self._written: Final[WeakValues[int, Place]] = WeakValues()
        self._writes = self._last_read = 0
        # places that were written last, and are in the page cache: sizes by offset, these last
        self.cached: dict[int, int] = {}
        self._behind = 0  # bytes of them
        self.ahead: Final[dict[int, int]] = {}  # and such as are read ahead
        self._asked = perf_counter()  # when that was
        self._syncing: deque[int] = deque()  # bytes of each request that is under way
        self.error: OSError | None = None  # of the disk, when it last took bytes
        self._full = 0  # `errno` of why it could not grow
        self._refused = 0.0  # when that was

    @finalizer
    def __del__(self) -> None:
        fd = getattr(self, "fd", None)
        if fd is not None:
            os.close(fd)

    def write(self, data: Array) -> Place:
        """Write a uint8 array. OSError: the disk is full, or fails; nothing is lost."""
        if self.error is not None:
            raise self.error
        began = perf_counter()
        place = self._place(data.nbytes)
        try:
            self._put(data, place.offset)
        except OSError as error:
            if error.errno in FULL:
                self._grows_no_more(place, error.errno)
            raise
        self._writes += 1
        self._written[self._writes] = place
        place.number = self._writes
        self.ahead.pop(place.offset, None)
        before = self.cached.pop(place.offset, 0)
        self.cached[place.offset] = size = max(before, place.size)
        self._behind += size - before
        if self._behind >= BEHIND or began - self._asked >= LATE:
            self._flush()
        rates.wrote(data.nbytes, perf_counter() - began)
        return place

    def _put(self, data: Array, offset: int) -> None:
        view = memoryview(data)  # type: ignore[arg-type]
        done = 0
        while done < data.nbytes:
            done += os.pwrite(self.fd, view[done:], offset + done)

    def _grows_no_more(self, place: Place, why: int) -> None:
        """For a while: the disk had no room for a place."""
        self._full, self._refused = why, perf_counter()
        if place.offset + place.size == self.end:  # a new one
            self.end, place.size = place.offset, 0

    @property
    def is_full(self) -> bool:
        """Whether places are few: a copy of bytes that are here as well is not worth one."""
        return self._full > 0

    def has_room(self) -> bool:
        """Whether more may be written, as far as is known."""
        if self.error is not None:
            return False
        return not self.is_full or bool(self.left) or perf_counter() - self._refused >= AGAIN

    def read(self, place: Place, into: Array) -> None:
        began = perf_counter()
        view = memoryview(into)  # type: ignore[arg-type]
        done = 0
        while done < place.nbytes:
            more = os.preadv(self.fd, [view[done:]], place.offset + done)
            if not more:
                raise OSError(f"the spill file in {self.directory!r} ends too early")
            done += more
        self.ahead.pop(place.offset, None)
        # what was just written stays; what the disk did not take is in the cache alone
        if self.error is None and place.offset not in self.cached:
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(self.fd, place.offset, place.size, os.POSIX_FADV_DONTNEED)
        rates.read_back(place.nbytes, perf_counter() - began)
        place.waiting = False
        self._read_ahead(place.number)

    def _read_ahead(self, number: int) -> None:
        """Of what was written next to what was read now, on the side to which the reads go:
        backward wants first what forward has made last.
        """
        step = 1 if 0 < self._last_read < number else -1
        self._last_read = number
        left = AHEAD
        for near in range(number + step, number + step * NEAR, step):
            place = self._written.get(near)
            if place is not None and place.waiting:
                place.expect()
                left -= 1
                if not left:
                    return

    def _place(self, nbytes: int) -> Place:
        size = -(-nbytes // PAGE) * PAGE
        while self.left:
            at, freed = self.left.popleft()
            self.ahead.pop(at, None)
            self._add(at, freed)
        offsets = self._free.get(size)
        if offsets:
            return Place(self, offsets.pop(), size, nbytes)
        offset = self._cut(size) if self._full else None
        if offset is None:
            if self._full and perf_counter() - self._refused < AGAIN:
                raise OSError(self._full, os.strerror(self._full))
            self._full = 0
            offset = self.end
            self.end = offset + size  # first: an interrupt may come, and nothing lies over another
        return Place(self, offset, size, nbytes)

    def _add(self, offset: int, size: int) -> None:
        self._free.setdefault(size, []).append(offset)

    def _cut(self, size: int) -> int | None:
        """Of the smallest free place that is larger, once those beside each other are one."""
        free: dict[int, list[int]] = {}
        for start, end in _joined([(o, o + n) for n, found in self._free.items() for o in found]):
            free.setdefault(end - start, []).append(start)
        self._free = free
        larger = min([n for n in free if n >= size], default=0)
        if not larger:
            return None
        offset = free[larger].pop()
        if not free[larger]:
            del free[larger]
        if larger > size:
            self._add(offset + size, larger - size)
        return offset

    def _flush(self) -> None:
        """Have another thread bring what was written to the disk, and drop the older half; wait
        where it is far behind.
        """
        self._asked = perf_counter()
        stays = _last(self.cached, BEHIND // 2)
        kept = sum(stays.values())
        nbytes, self._behind, self.cached = self._behind - kept, kept, stays
        if not serving(_worker, 1, _serve, _requests, "skimp-spill"):
            return  # the system brings it there in its own time
        self._syncing.append(nbytes)
        _requests.put(self)
        while sum(self._syncing) > FAR_BEHIND:
            if not _worker or not _worker[0].is_alive():
                self._syncing.clear()
                return
            _done.acquire(timeout=1.0)

    def bring_to_disk(self) -> None:
        """On the other thread: what was written goes to the disk and out of the page cache, but for
        what was written last.
        """
        try:
            if self.error is None:
                os.fdatasync(self.fd)
                # copies, in one step each: a list of pairs may collect garbage amid them
                stays = [*self.cached.copy().items(), *self.ahead.copy().items()]
                for start, nbytes in _between([(o, o + n) for o, n in stays]):
                    os.posix_fadvise(self.fd, start, nbytes, os.POSIX_FADV_DONTNEED)
        except OSError as error:  # told by whoever writes next
            self.error = error
        finally:
            with contextlib.suppress(IndexError):
                self._syncing.popleft()
            _done.release()


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of a file, in which those that touch are one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


def _between(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where what is between spans of a file begins, and its bytes; 0: to its end."""
    at = 0
    for start, end in _joined(spans):
        if start > at:
            yield at, start - at
        at = max(at, end)
    yield at, 0


def _last(sizes: dict[int, int], nbytes: int) -> dict[int, int]:
    """Those that came last, as many as have no more bytes."""
    found: list[tuple[int, int]] = []
    for offset, size in reversed(sizes.items()):
        nbytes -= size
        if nbytes < 0:
            break
        found.append((offset, size))
    return dict(reversed(found))


class Rates:
    """What the disk was seen to do, in bytes a second, and how much in all."""

    def __init__(self) -> None:
        self.write = self.read = _FIRST_RATE
        self.written = self.were_read = 0
        self.seconds = 0.0

    def wrote(self, nbytes: int, seconds: float) -> None:
        self.write = _mixed(self.write, nbytes, seconds)
        self.written += nbytes
        self.seconds += seconds

    def read_back(self, nbytes: int, seconds: float) -> None:
        self.read = _mixed(self.read, nbytes, seconds)
        self.were_read += nbytes
        self.seconds += seconds


def _mixed(rate: float, nbytes: int, seconds: float) -> float:
    return _FORGET * rate + (1 - _FORGET) * nbytes / max(seconds, 1e-9)


rates: Final = Rates()

# -- the other thread -----------------------------------------------------------------------------

_requests: SimpleQueue[File] = SimpleQueue()
_done = threading.Semaphore(0)
_worker: list[threading.Thread] = []


def _serve(requests: SimpleQueue[File]) -> None:
    while True:
        requests.get().bring_to_disk()


# -- the files of this process --------------------------------------------------------------------

_files: dict[str | None, File] = {}  # by the directory that was asked for


def file(directory: str | None) -> File:
    """The file that is written to now. OSError: there is no place for one."""
    found = None if _forking else _files.get(directory)
    if found is None:
        found = _files[directory] = File(places.directory(directory))
    return found


def seal() -> None:
    """Write to another file from now on; what is in this one can still be read."""
    _files.clear()
    _forking.clear()


_forking: list[None] = []  # an item while this process forks: other threads get files of their own


def _after_fork_in_child() -> None:
    global _requests, _done
    seal()
    _requests, _done = SimpleQueue(), threading.Semaphore(0)
    _worker.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    # In the parent by functions of C alone: Python prints what a signal's handler raises in others.
    os.register_at_fork(after_in_parent=_files.clear)  # before what comes next ends the fork
    os.register_at_fork(
        before=partial(_forking.append, None),
        after_in_parent=_forking.clear,
        after_in_child=_after_fork_in_child,
    )


def _open(directory: str) -> int:
    flag = getattr(os, "O_TMPFILE", 0)
    if flag:
        with contextlib.suppress(OSError):  # not every file system has it
            return os.open(directory, os.O_RDWR | os.O_CLOEXEC | flag, 0o600)
    import tempfile  # where the system has no files without a name

    try:
        fd, name = tempfile.mkstemp(prefix="skimp-spill-", dir=directory)
    except OSError as error:
        raise OSError(error.errno, _no_file(directory, error)) from None
    os.unlink(name)
    return fd


def _no_file(directory: str, error: OSError) -> str:
    return (
        f"no file for spilled bytes can be made in {directory!r} ({error.strerror}): name another "
        f"directory with {places.VARIABLE} or --spill-dir, or don't spill (--no-spill)"
    )
