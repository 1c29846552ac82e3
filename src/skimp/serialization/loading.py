"""`load`: what `save` or PyTorch wrote. Nothing of the file's is run."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import sys
from typing import IO, Any

import numpy as np

from skimp._engine.memory import storage as storages
from skimp._engine.tensor.tensor import Array
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp._ops.create.tensor_types import STORAGE_TYPES
from skimp.serialization import files, names, safe, safetensors
from skimp.serialization.archive import ArchiveReader
from skimp.serialization.places import Place, place_of
from skimp.serialization.rebuild import refuse
from skimp.serialization.unpickler import Unpickler, read

ZIP = b"PK\x03\x04"
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how PyTorch's files began before version 1.6


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """The object in a file of `torch.save`, of PyTorch or of skimp.

    Only tensors, plain values, containers and what `serialization.add_safe_globals` allows is
    built; `weights_only=False` adds the modules of `torch.nn`. With `mmap=True` the bytes stay in
    the file until they are read; writes to such tensors don't reach the file.
    """
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    place = place_of(map_location)
    if files.is_path(f) and os.fspath(f).endswith(".safetensors"):
        return safetensors.load_file(f, "cpu" if map_location is None else map_location)
    if mmap and not files.is_path(f):
        raise ValueError("f must be a file path in order to use the mmap argument")
    with files.reading(f) as file:
        _check_kind(file)
        mapped = np.memmap(f, np.uint8, "c") if mmap else None
        archive = ArchiveReader(file)
        if "constants.pkl" in archive:
            raise RuntimeError(
                "The file is a TorchScript archive, which skimp can't load; save the "
                "state_dict instead"
            )
        if "byteorder" in archive and archive.read("byteorder") != sys.byteorder.encode():
            raise RuntimeError(
                "The file was written on a machine of the other byte order, which skimp can't read"
            )
        encoding = pickle_load_args.get("encoding", "utf-8")
        return read(_Loader(archive, place, mapped, weights_only is False, encoding))


def _check_kind(file: IO[bytes]) -> None:
    """Raise what describes a file that is no archive."""
    start = file.tell()
    head = file.read(264)
    file.seek(start)
    if head[:4] == ZIP:
        return
    if not head:
        raise EOFError("Ran out of input: the file is empty")
    if head.startswith(LEGACY) or head[257:262] == b"ustar":
        raise pickle.UnpicklingError(
            "Weights only load failed. The file is in a format that PyTorch wrote before "
            "version 1.6, which skimp does "
            "not read; load it with PyTorch and save it again"
        )
    raise pickle.UnpicklingError(
        "Weights only load failed. The file is none that torch.save wrote: it begins "
        f"with {head[:8]!r}"
    )


class _Loader(Unpickler):
    """The unpickler of one archive: it brings in the storages that the pickle refers to."""

    def __init__(
        self,
        archive: ArchiveReader,
        place: Place,
        mapped: Array | None,
        modules: bool,
        encoding: str,
    ) -> None:
        super().__init__(io.BytesIO(archive.read("data.pkl")), modules, encoding)
        self._archive = archive
        self._place = place
        self._mapped = mapped
        self._found: dict[str, UntypedStorage] = {}

    def persistent_load(self, pid: Any) -> Any:
        """A storage: ("storage", type, key, place, number of elements)."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            refuse(f"an object from outside the pickle: {pid!r}")
        _, kind, key, tag, n = pid
        if kind is UntypedStorage:
            return self._storage(key, tag, n)
        dtype = next((d for d, t in STORAGE_TYPES.items() if t is kind), None)
        if dtype is None:
            refuse(f"a storage of type {kind!r}")
        return TypedStorage(wrap_storage=self._storage(key, tag, n * dtype.itemsize), dtype=dtype)

    def _storage(self, key: Any, tag: Any, nbytes: Any) -> UntypedStorage:
        found = self._found.get(key)
        if found is None:
            name = f"data/{key}"
            if nbytes != self._archive.size(name):
                refuse(f"{nbytes} bytes of {name}, which has {self._archive.size(name)}")
            found = self._place(UntypedStorage(self._bytes(name, nbytes)), str(tag))
            self._found[key] = found
        return found

    def _bytes(self, name: str, nbytes: int) -> storages.Storage:
        if self._mapped is not None and nbytes:
            start = self._archive.offset(name)
            array = np.asarray(self._mapped)[start : start + nbytes]
            if start % 16 == 0 and len(array) == nbytes:
                return storages.external(array)
        new = storages.empty(nbytes)
        self._archive.read_into(name, new.flat())
        return new


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file that loading would refuse; nothing is built."""

    with files.reading(f) as file:
        pickled = ArchiveReader(file).read("data.pkl")
    found: list[str] = []
    words: list[str] = []
    for op, value, _ in pickletools.genops(pickled):
        if op.name in ("BINUNICODE", "SHORT_BINUNICODE", "UNICODE"):
            words.append(str(value))
        elif op.name == "GLOBAL":
            found.append(str(value).replace(" ", "."))
        elif op.name == "STACK_GLOBAL" and len(words) > 1:
            found.append(".".join(words[-2:]))
    known = {
        name.replace("builtins.", "__builtin__.") for name in names.DEFAULT
    } | names.DEFAULT.keys()
    return sorted(set(found) - known - safe.allowed().keys())
