"""Raw memory: straight from the system, on huge pages where it has them and they waste little.

Fresh bytes are zero, are private to the process (a fork's copies are its own), and go back to the
system when the last reference to them dies, or earlier by `discard`.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from skimp._kernels import compiled, sharing

HUGE_PAGE: Final = 2 << 20
PAGE: Final = mmap.PAGESIZE
SMALL_PAGES: Final = 4 * HUGE_PAGE  # of addresses, from the lowest on: then at most 1/4 is wasted
_LARGEST_SMALL: Final = 4 << 20
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux
# Elsewhere this advice keeps the pages, or does not promise zeros.
_DISCARD: Final[int | None] = mmap.MADV_DONTNEED if os.name == "posix" and _ADVICE else None
_FLAGS: Final[int | None] = (
    mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if hasattr(mmap, "MAP_ANONYMOUS") else None
)
_UNCOUNTED: Final[int] = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; named from Python 3.13 on


def fresh(nbytes: int) -> memoryview:
    """`nbytes` zeroed bytes, on a huge page's boundary if there is room for one.

    Raises OSError, MemoryError or OverflowError when the system refuses.
    """
    if nbytes < HUGE_PAGE:
        return memoryview(_map(nbytes))[:nbytes]
    return _on_huge_pages(nbytes)


def reserve(nbytes: int) -> memoryview | None:
    """The same as addresses only: each page is asked for when it is touched first. The first
    `SMALL_PAGES` bytes are on small pages: who uses no more would have a huge one for its last few.

    None where the system charges for addresses, where `discard` does nothing, or if it refuses.
    """
    if _DISCARD is None:
        return None
    with contextlib.suppress(OSError, MemoryError, OverflowError):  # such as a limit of addresses
        return _on_huge_pages(nbytes, _UNCOUNTED, SMALL_PAGES)
    return None


def discard(memory: Any, start: int, end: int) -> bool:
    """Give whole pages of `fresh` or `reserve`d memory back; they read as zeros afterwards.

    False, and nothing has changed, where that can't be.
    """
    mapping = getattr(memory, "obj", None)
    if _DISCARD is None or not isinstance(mapping, mmap.mmap):
        return False
    offset = ctypes.addressof(ctypes.c_char.from_buffer(memory)) - _address(mapping)
    try:
        mapping.madvise(_DISCARD, offset + start, end - start)
    except OSError:  # locked pages stay
        return False
    return True


@cache
def _mremap() -> Callable[..., int] | None:
    """Linux's, where the C library has it. No other thread runs meanwhile: it would see bytes that
    are free nowhere, and be refused.
    """
    found: Any = getattr(ctypes.PyDLL(None), "mremap", None) if _DISCARD is not None else None
    if found is not None:
        found.restype = ctypes.c_void_p
        found.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p]
    return found  # type: ignore[no-any-return]


_MOVE: Final = 1 | 2 | 4  # MREMAP_MAYMOVE, _FIXED, _DONTUNMAP: addresses stay, without pages


@cache
def moves_across() -> bool:
    """Whether one move may reach across what was moved before: from Linux 6.17 on."""
    memory = reserve(4 * PAGE)
    if memory is None:
        return False
    memory[0] = memory[PAGE] = 1  # they become two mappings once they have changed places
    moved = move(memory, 0, 3 * PAGE, PAGE) and move(memory, PAGE, 2 * PAGE, PAGE)
    return moved and move(memory, 2 * PAGE, 0, 2 * PAGE) and memory[0] == memory[PAGE] == 1


def move(memory: Any, start: int, to: int, nbytes: int) -> bool:
    """Move whole pages of `reserve`d memory to where there are none, with what is in them.

    False, and nothing has changed, where that can't be: before Linux 5.7, across what was moved
    before (`moves_across`), or with too many mappings.
    """
    mremap = _mremap()
    if mremap is None or not isinstance(getattr(memory, "obj", None), mmap.mmap):
        return False
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return mremap(first + start, nbytes, nbytes, _MOVE, first + to) == first + to


@cache
def _mmap() -> Callable[..., int] | None:
    """Linux's, which no other thread sees under way, as `_mremap`."""
    found: Any = getattr(ctypes.PyDLL(None), "mmap", None) if _DISCARD is not None else None
    if found is not None:
        found.restype = ctypes.c_void_p
        found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t]
    return found  # type: ignore[no-any-return]


_FIXED: Final = 0x10  # MAP_FIXED: instead of what is there


def renew(memory: Any, start: int, end: int) -> bool:
    """Give whole pages of `reserve`d memory back, as `discard` does, and have their addresses be
    one mapping of the system's, as they were before pages of them moved.

    False, and nothing has changed, where that can't be.
    """
    mapping, call = getattr(memory, "obj", None), _mmap()
    if call is None or _FLAGS is None or not isinstance(mapping, mmap.mmap):
        return False
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    flags = _FLAGS | _UNCOUNTED | _FIXED
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if call(first + start, end - start, access, flags, -1, 0) != first + start:
        return False
    huge = max(start, SMALL_PAGES)
    if _ADVICE is not None and len(memory) > SMALL_PAGES and huge < end:
        with contextlib.suppress(OSError):  # as in `_on_huge_pages`
            mapping.madvise(_ADVICE, first - _address(mapping) + huge, end - huge)
    return True


_MANY: Final = 1 << 18  # bytes from which a call of the C library's repays itself
_BYTE: Final = sharing.BRIEF / 4  # seconds


def clear(array: np.ndarray[Any, Any]) -> None:
    """Make all bytes of `array`, which is contiguous, zero.

    The C library does not read what it overwrites, and lets other threads run: 400 MB take it a
    quarter of the time of `fill(0)`, and a team, where loops are compiled, half of that.
    """
    if array.nbytes < _MANY:
        array.fill(0)
    elif (loops := compiled.loops()) is not None:
        flat = array.reshape(-1).view(np.uint8)
        sharing.call(loops.cleared, flat.size, _BYTE, flat)
    else:
        ctypes.memset(array.__array_interface__["data"][0], 0, array.nbytes)


@cache
def _trim() -> Callable[[int], int]:
    """glibc's, where that is the C library."""
    found: Any = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    return found or (lambda _: 0)


def trim() -> None:
    """Have the C library give back the pages between small arrays, which it keeps when they die.

    Takes 50 us for some ten MiB; nothing happens where it knows no way.
    """
    _trim()(0)


def resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def keep_pages() -> None:
    """Have glibc keep the pages of up to 8 MiB that small arrays leave at the end of its heap for
    the next ones: it goes by twice the largest mapping that was freed, and takes no mappings for
    what is smaller. Nobody touches the one that is made here.
    """
    np.empty(_LARGEST_SMALL, np.uint8)


def _on_huge_pages(nbytes: int, flags: int = 0, beyond: int = 0) -> memoryview:
    # The excess is never touched, so it costs addresses and no memory.
    mapping = _map(nbytes + HUGE_PAGE, flags)
    start = -_address(mapping) % HUGE_PAGE
    if _ADVICE is not None and nbytes > beyond:
        with contextlib.suppress(OSError):  # a kernel built without huge pages refuses the advice
            mapping.madvise(_ADVICE, start + beyond)
    return memoryview(mapping)[start : start + nbytes]


def _map(nbytes: int, flags: int = 0) -> mmap.mmap:
    if _FLAGS is None:  # Windows
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=_FLAGS | flags)


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


# -- what the system has ---------------------------------------------------------------------------

_CONTROL_GROUPS: Final = (
    "/sys/fs/cgroup/memory.max",  # version 2
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",  # version 1
)
_UNKNOWN: Final = 8 << 30  # a modest machine, where the system does not tell


def total_memory() -> int:
    """Bytes that this process may use at most: the machine's, or less in a container."""
    return min([_physical("SC_PHYS_PAGES"), *_container_limits()])


def free_memory() -> int:
    """Bytes that the system could give now."""
    return min(_available(), total_memory())


def _available() -> int:
    # other systems have no such file
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo") as file:
        for line in file:
            if not line.startswith("MemAvailable:"):
                continue
            return int(line.split()[1]) * 1024
    return _physical("SC_AVPHYS_PAGES")


def _physical(name: str) -> int:
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    return _UNKNOWN


def _container_limits() -> list[int]:
    limits = []
    for path in _CONTROL_GROUPS:
        # no such file, or no limit: "max"
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            limits.append(int(file.read()))
    return limits
