"""Where a spill file may lie: a directory on a disk. A tmpfs is memory, and no help."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

VARIABLE: Final = "SKIMP_SPILL_DIR"
TOLD: Final = "tmpfs:"  # before a directory: its user knows that it is memory
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})


def directory(wanted: str | None = None) -> str:
    """The directory for spilled bytes: what is wanted, what SKIMP_SPILL_DIR says, or the first of
    the usual ones that is on a disk.

    OSError: there is none, or the one that was asked for is memory, and nobody said `tmpfs:DIR`.
    """
    asked = wanted or os.environ.get(VARIABLE)
    if asked:
        return _as_asked(asked)
    import tempfile  # with `shutil` and its formats, once a budget spills

    tried = list(dict.fromkeys([tempfile.gettempdir(), "/var/tmp", os.getcwd()]))
    for place in tried:
        if os.access(place, os.W_OK) and not in_memory(place):
            return place
    raise OSError(
        f"no directory for spilled bytes is on a disk ({', '.join(tried)} are memory or can't be "
        f"written to): name one with {VARIABLE}, or don't spill (--no-spill)"
    )


def _as_asked(asked: str) -> str:
    told = asked.startswith(TOLD)
    place = asked.removeprefix(TOLD)
    if not os.path.isdir(place):
        raise OSError(f"there is no directory {place!r} to spill to")
    if not told and in_memory(place):
        raise OSError(
            f"{place!r} is a tmpfs, which is memory: spilling there saves none. Name a directory "
            f"on a disk, or say {TOLD + place!r} if it has to be"
        )
    return place


def in_memory(place: str) -> bool:
    """Whether a directory's file system keeps its files in memory, as far as the system tells."""
    try:
        with open("/proc/self/mountinfo") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    return _kind_of(os.path.realpath(place), lines) in _IN_MEMORY


def _kind_of(place: str, mounts: Iterable[str]) -> str:
    """The type of the file system that is mounted nearest above a path."""
    found, kind = "", ""
    for line in mounts:
        left, _, right = line.partition(" - ")
        at = left.split()[4].replace("\\040", " ")
        inside = place == at or place.startswith(at.rstrip("/") + "/")
        if inside and len(at) >= len(found):  # the last one mounted hides the others
            found, kind = at, right.split()[0]
    return kind
