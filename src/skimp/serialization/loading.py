"""`load`: what `save` or PyTorch wrote. Nothing of the file's is run."""

from __future__ import annotations

import io
import os
import pickle
import sys
import warnings
from typing import IO, Any

import numpy as np

from skimp._engine.memory import storage as storages
from skimp._engine.tensor.tensor import Array
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp.serialization import files, legacy, names, options, safe, safetensors
from skimp.serialization.archive import ArchiveReader
from skimp.serialization.limits import refuse
from skimp.serialization.pids import Reference, in_this_order, parsed
from skimp.serialization.places import Place, place_of
from skimp.serialization.scan import globals_of
from skimp.serialization.unpickler import Unpickler, read

ZIP = b"PK\x03\x04"
_TRUE = ("1", "y", "yes", "true")


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
    built; `weights_only=False` adds a longer list: layers, optimizers, schedules, distributions,
    NumPy's arrays, dates. No function of the file's is called, and no class that is neither on the
    list nor named by the program is built: that is an UnpicklingError, which says the line to
    write. With `mmap=True` the bytes stay in the file until they are read; writes to such tensors
    don't reach the file.

    Raises: FileNotFoundError; RuntimeError for a file that is cut short; pickle.UnpicklingError for
    a class that is not on the list.

    The environment's `TORCH_FORCE_WEIGHTS_ONLY_LOAD` sets `weights_only`,
    `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` unsets it where a call says nothing.
    """
    weights_only = _forced(weights_only)
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    place = place_of(map_location)
    if files.is_path(f) and os.fspath(f).endswith(".safetensors"):
        return safetensors.load_file(f, "cpu" if map_location is None else map_location)
    if mmap and not files.is_path(f):
        raise ValueError("f must be a file path in order to use the mmap argument")
    whole, encoding = weights_only is False, pickle_load_args.get("encoding", "utf-8")
    with files.reading(f) as file:
        if not _is_archive(file):
            if mmap:
                raise RuntimeError(
                    "mmap can only be used with files saved with "
                    f"`torch.save(_use_new_zipfile_serialization=True)`, {f} is of the older kind"
                )
            return legacy.load(file, place, whole, encoding)
        mapped = np.memmap(f, np.uint8, "c") if mmap else None
        archive = ArchiveReader(file)
        if "constants.pkl" in archive:
            raise RuntimeError(
                "The file is a TorchScript archive, which skimp can't load; save the "
                "state_dict instead"
            )
        return read(_Loader(archive, place, mapped, whole, encoding))


def _forced(weights_only: bool | None) -> bool | None:
    """What a call asks for, unless the environment does: whoever runs a program may not edit it."""
    only, all_of_it = [
        os.environ.get(f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD", "0").lower() in _TRUE
        for name in ("", "NO_")
    ]
    if only and all_of_it:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` "
            "should be set, but both were set."
        )
    if all_of_it and weights_only is None:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the"
            "`weights_only` argument was not explicitly passed to `torch.load`, forcing "
            "weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return True if only else weights_only


def _is_archive(file: IO[bytes]) -> bool:
    """Whether it is a zip file; raises what describes a file that is nothing of the kind."""
    start = file.tell()
    head = file.read(264)
    file.seek(start)
    if head[:4] == ZIP:
        return True
    if not head:
        raise EOFError("Ran out of input: the file is empty")
    if head[257:262] == b"ustar":
        raise pickle.UnpicklingError(
            "Weights only load failed. The file is in the tar format that PyTorch wrote before "
            "version 0.1.10, which skimp does not read; load it with PyTorch and save it again"
        )
    if head[:1] != pickle.PROTO or len(head) < 2 or head[1] > pickle.HIGHEST_PROTOCOL:
        raise pickle.UnpicklingError(
            "Weights only load failed. The file is none that torch.save wrote: it begins "
            f"with {head[:8]!r}"
        )
    return False


class _Loader(Unpickler):
    """The unpickler of one archive: it brings in the storages that the pickle refers to."""

    def __init__(
        self, archive: ArchiveReader, place: Place, mapped: Array | None, whole: bool, encoding: str
    ) -> None:
        super().__init__(io.BytesIO(archive.read("data.pkl")), whole, encoding)
        self._archive = archive
        self._place = place
        self._mapped = mapped
        self._order = _byte_order(archive)
        self._found: dict[str, UntypedStorage] = {}

    def persistent_load(self, pid: Any) -> Any:
        """A storage: ("storage", type, key, place, number of elements)."""
        reference = parsed(pid)
        found = self._storage(reference)
        if reference.dtype is None:
            return found
        return TypedStorage(wrap_storage=found, dtype=reference.dtype)

    def _storage(self, reference: Reference) -> UntypedStorage:
        found = self._found.get(reference.key)
        if found is None:
            name = f"data/{reference.key}"
            size = self._archive.size(name)
            if reference.nbytes != size:
                refuse(f"{reference.nbytes} bytes of {name}, which has {size}")
            found = self._place(UntypedStorage(self._bytes(name, reference)), reference.tag)
            self._found[reference.key] = found
        return found

    def _bytes(self, name: str, reference: Reference) -> storages.Storage:
        nbytes = reference.nbytes
        if self._mapped is not None and nbytes and self._order == sys.byteorder:
            start = self._archive.offset(name)
            array = np.asarray(self._mapped)[start : start + nbytes]
            if start % 16 == 0 and len(array) == nbytes:
                return storages.external(array)
        new = storages.empty(nbytes)
        self._archive.read_into(name, new.flat())
        in_this_order(new.flat(), reference.dtype, self._order)
        return new


def _byte_order(archive: ArchiveReader) -> str:
    """The order of the bytes in the records: the file's own word, or the process's setting."""
    if "byteorder" in archive:
        found = archive.read("byteorder")
        if found not in (b"little", b"big"):
            raise ValueError(f"Unknown endianness type: {found[:20]!r}")
        return found.decode()
    order = options.get_default_load_endianness()
    return sys.byteorder if order is None else options.ORDERS[order]


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file that loading would refuse; nothing is built.

    Raises: UnpicklingError for a file that `torch.save` did not write, ValueError for one of its
    older formats.
    """
    with files.reading(f) as file:
        if not _is_archive(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        pickled = ArchiveReader(file).read("data.pkl")
    found = {".".join(one) for one in globals_of(io.BytesIO(pickled))}
    return sorted(found - names.DEFAULT.keys() - safe.allowed().keys())
