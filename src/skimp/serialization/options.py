"""torch.serialization's settings of the process."""

from __future__ import annotations

import enum
import mmap
import sys
from typing import Any


class LoadEndianness(enum.Enum):
    """In which order a file without a mark has its bytes."""

    NATIVE, LITTLE, BIG = 1, 2, 3


ORDERS = {
    LoadEndianness.NATIVE: sys.byteorder,
    LoadEndianness.LITTLE: "little",
    LoadEndianness.BIG: "big",
}  # the words that files have for them


class SourceChangeWarning(Warning):
    """For filters of warnings: a module's source is another than when it was saved."""


_endianness: LoadEndianness | None = None
_checksums = True
_mapped = mmap.MAP_PRIVATE


def get_default_load_endianness() -> LoadEndianness | None:
    """The order of bytes of files without a mark; None means this machine's."""
    return _endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set that order. Files with a mark, all of the last years', don't ask.

    Raises: TypeError for what is no LoadEndianness and not None.
    """
    global _endianness
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _endianness = endianness


def get_crc32_options() -> bool:
    """Whether records get checksums."""
    return _checksums


def set_crc32_options(compute_crc32: bool) -> None:
    """Accepted: zip files have checksums, and they cost little beside writing."""
    global _checksums
    _checksums = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` would map a file; here it is always private."""
    return _mapped


class set_default_mmap_options:  # noqa: N801  (PyTorch's name)
    """Set that, at once or inside a `with`: mmap.MAP_PRIVATE or mmap.MAP_SHARED."""

    def __init__(self, flags: int) -> None:
        global _mapped
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE "
                f"or mmap.MAP_SHARED, but got {flags}"
            )
        self.previous, _mapped = _mapped, flags

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        global _mapped
        _mapped = self.previous
