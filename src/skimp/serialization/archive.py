"""PyTorch's zip archives: uncompressed records below one root, whose bytes begin at multiples of
64.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from types import TracebackType
from typing import IO, Any

from skimp._engine.tensor.tensor import Array

ALIGNMENT = 64
CHUNK = 1 << 20  # bytes that are checked and copied at a time: they stay in the cache
HEADER = 30  # bytes of a record's header without the name and what is optional
UNFOLDED = 100  # times the file's length: what deflated records may have in all
LARGE = 1 << 30  # from here on a record's header has room for sizes of 8 bytes


class _Forward:
    """A file that is written from here to its end: a gzip file says that it can be sought, and
    can't go back. So sums and sizes stand behind each record, as in PyTorch's archives.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._write = file.write
        self.flush = getattr(file, "flush", lambda: None)

    def write(self, data: bytes | memoryview) -> int:
        self._write(data)
        return len(data)


class ArchiveWriter:
    """Writes records to a file that is open for writing."""

    def __init__(self, file: IO[bytes], root: str) -> None:
        forward: Any = _Forward(file)
        self._zip = zipfile.ZipFile(forward, "w", zipfile.ZIP_STORED)
        self._root = root
        self._names = self._sums = 0

    def add(self, name: str, data: bytes | memoryview) -> None:
        """Write one record; nothing is copied."""
        info = zipfile.ZipInfo(f"{self._root}/{name}")
        info.file_size = len(data)
        large = len(data) > LARGE
        info.extra = _padding(self._zip.start_dir, info, large)
        with self._zip.open(info, "w", force_zip64=large) as record:
            for start in range(0, len(data), CHUNK):
                record.write(data[start : start + CHUNK])
        self._names = zlib.crc32(name.encode(), self._names)
        self._sums = zlib.crc32(struct.pack("<I", info.CRC), self._sums)

    def identity(self) -> bytes:
        """A number that says which archive this is: files with the same records have the same."""
        return f"{self._names:020d}{self._sums:020d}".encode()

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._zip.fp = None  # unfinished: nothing more is written, now or when it dies
        self._zip.close()


def _padding(start: int, info: zipfile.ZipInfo, large: bool) -> bytes:
    """An extra field that moves the record's bytes to a multiple of ALIGNMENT."""
    begin = start + 30 + len(info.filename.encode()) + (20 if large else 0) + 4
    n = -begin % ALIGNMENT
    return b"FB" + struct.pack("<H", n) + b"Z" * n


class ArchiveReader:
    """Reads the records of a file that is open for reading.

    What its directory says of the records' places and sizes is compared with the file first.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
            self._records = {info.filename: info for info in self._zip.infolist()}
        except Exception as error:
            raise RuntimeError(
                "PytorchStreamReader failed reading zip archive: failed finding central directory. "
                f"The file is damaged, or its end is missing ({_said(error)}); write it again"
            ) from error
        _check_places(list(self._records.values()), file.seek(0, 2))
        self._root = next(iter(self._records), "").partition("/")[0]

    def __contains__(self, name: str) -> bool:
        return f"{self._root}/{name}" in self._records

    def size(self, name: str) -> int:
        """Bytes of a record."""
        return self._info(name).file_size

    def read(self, name: str) -> bytes:
        """All bytes of a small record."""
        info = self._info(name)
        try:
            return self._zip.read(info)
        except MemoryError:
            raise
        except Exception as error:
            raise _damaged(name, _said(error)) from error

    def read_into(self, name: str, target: Array) -> None:
        """A record's bytes, checked, into an array of just that many."""
        view = memoryview(target.data)
        info = self._info(name)
        done = 0
        try:
            with self._zip.open(info) as record:
                while True:
                    piece = record.read(min(CHUNK, len(view) - done))
                    if not piece:
                        break
                    view[done : done + len(piece)] = piece
                    done += len(piece)
                record.read(1)  # at the end the sum is compared
        except MemoryError:
            raise
        except Exception as error:
            raise _damaged(name, _said(error)) from error
        if done != len(view):
            raise _damaged(name, f"{done} of {len(view)} bytes")

    def offset(self, name: str) -> int:
        """Where a record's bytes begin in the file."""
        info = self._info(name)
        if info.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(
                f"The record {name} is compressed, so it can't be mapped; load without mmap=True"
            )
        self._file.seek(info.header_offset + 26)
        try:
            of_name, of_extra = struct.unpack("<HH", self._file.read(4))
        except struct.error as error:
            raise _damaged(name, error) from error
        return info.header_offset + 30 + int(of_name) + int(of_extra)

    def _info(self, name: str) -> zipfile.ZipInfo:
        info = self._records.get(f"{self._root}/{name}")
        if info is None:
            raise RuntimeError(
                f"PytorchStreamReader failed locating file {name}: file not found. "
                "This is a zip file, but none that torch.save wrote"
            )
        return info


def _damaged(name: str, why: object) -> RuntimeError:
    return RuntimeError(
        f"PytorchStreamReader failed reading file {name}: the record is damaged ({why})"
    )


def _said(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def _check_places(records: list[zipfile.ZipInfo], length: int) -> None:
    """Records lie within the file, one behind the other, and unfold to a bounded number of bytes.

    A few bytes could otherwise stand for many: records on the same place, or deflated zeros.
    """
    end = unfolded = 0
    for info in sorted(records, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise _damaged(info.filename[:200], "it overlaps another one")
        end = info.header_offset + HEADER + info.compress_size
        if end > length:
            raise _damaged(info.filename[:200], f"it ends {end - length} bytes behind the file")
        if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
            raise _damaged(info.filename[:200], "it has two sizes")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _damaged(info.filename[:200], f"it is of type {info.compress_type}")
        if info.compress_type == zipfile.ZIP_DEFLATED:
            unfolded += info.file_size
    if unfolded > UNFOLDED * length:
        raise RuntimeError(
            f"PytorchStreamReader failed reading zip archive: its records are deflated, and would "
            f"be {unfolded} bytes, more than {UNFOLDED} times the file's; write it again without "
            "compression"
        )
