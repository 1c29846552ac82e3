"""Pickles put together by hand, in archives, and a watch over what runs while one is loaded."""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import skimp
from skimp.serialization.archive import ArchiveWriter

PROTO = b"\x80\x02"


def archived(data: bytes, records: dict[str, bytes] | None = None) -> io.BytesIO:
    """An archive around a pickle of somebody's own, with one storage of 16 bytes."""
    buffer = io.BytesIO()
    with ArchiveWriter(buffer, "archive") as archive:
        archive.add("data.pkl", data)
        for name, content in (records or {"data/0": bytes(16)}).items():
            archive.add(name, content)
        archive.add("version", b"3\n")
    buffer.seek(0)
    return buffer


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def name(module: str, of: str) -> bytes:
    return f"c{module}\n{of}\n".encode()


def call(function: bytes, *args: bytes) -> bytes:
    return function + b"(" + b"".join(args) + b"tR"


STORAGE = (
    b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + b"K\x04tQ"
)
TENSOR = call(
    name("torch._utils", "_rebuild_tensor_v2"),
    STORAGE, b"K\x00", b"K\x04\x85", b"K\x01\x85", b"\x89",
    name("collections", "OrderedDict") + b")R",
)  # fmt: skip


class Call:
    """Pickles as a call, and as whatever state and items are given."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return self.parts


def with_call(*parts: Any) -> bytes:
    return pickle.dumps(Call(*parts), 2)


_watching: list[list[str]] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watching and event.startswith(_REACHES_OUT):
        _watching[-1].append(f"{event} {str(args)[:100]}")


_REACHES_OUT = (
    "open", "os.", "shutil.", "subprocess.", "socket.", "ctypes.", "exec", "compile", "import",
    "builtins.input", "code.", "glob.", "tempfile.", "urllib.", "webbrowser.", "pty.", "signal.",
    "sys.addaudithook", "sys.setprofile", "sys.settrace", "marshal.", "pickle.",
)  # fmt: skip
_installed: list[bool] = []


@contextmanager
def watched() -> Iterator[list[str]]:
    """What Python's own audit sees meanwhile of files, processes, imports, compiled code."""
    if not _installed:
        # What is imported at the first use: zipfile's codec, the lists, the codecs of old texts.
        for data in (b"N.", b"N.", b"Va\n."):
            skimp.load(archived(PROTO + data), weights_only=False)
        "a".encode("unicode-escape").decode("unicode-escape")
        sys.addaudithook(_hook)
        _installed.append(True)
    seen: list[str] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.pop()
