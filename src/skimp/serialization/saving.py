"""`save`: any object made of tensors, containers and plain values, in PyTorch's format."""

from __future__ import annotations

import io
import os
import pickle
import sys
from typing import IO, Any

from skimp.serialization import files, legacy
from skimp.serialization.archive import ALIGNMENT, ArchiveWriter
from skimp.serialization.pickler import Pickler

DEFAULT_PROTOCOL = 2


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write `obj` to a path or an open file, in the zip format that PyTorch reads, or the one
    before it (`_use_new_zipfile_serialization=False`).

    A path is replaced when all is written: a save that is killed leaves the old file. Tensors that
    share a storage share it after loading, and a view writes all of its storage.

    Raises: RuntimeError for a folder that is not there; what pickle raises for an object that it
    can't write.
    """
    if pickle_module is not pickle:
        raise ValueError(
            f"skimp pickles with the standard library's pickle only, not {pickle_module!r}"
        )
    if files.is_path(f):
        root = os.path.splitext(os.path.basename(os.fspath(f)))[0]
        with files.replacing(f) as file:
            if _use_new_zipfile_serialization:
                _write(obj, file, root if root.isascii() and root else "archive", pickle_protocol)
            else:
                legacy.save(obj, file, pickle_protocol)
    elif hasattr(f, "write"):
        if _use_new_zipfile_serialization:
            _write(obj, f, "archive", pickle_protocol)
        else:
            legacy.save(obj, f, pickle_protocol)
    else:
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' "
            f"attribute, not {f!r}"
        )


def _write(obj: Any, file: IO[bytes], root: str, protocol: int) -> None:
    pickled = io.BytesIO()
    pickler = Pickler(pickled, protocol)
    pickler.dump(obj)
    with ArchiveWriter(file, root) as archive:
        archive.add("data.pkl", pickled.getbuffer())
        archive.add(".format_version", b"1")
        archive.add(".storage_alignment", str(ALIGNMENT).encode())
        archive.add("byteorder", sys.byteorder.encode())
        for key, storage in enumerate(pickler.storages):
            archive.add(f"data/{key}", storage.flat().data)
        archive.add("version", b"3\n")
        archive.add(".data/serialization_id", archive.identity())
