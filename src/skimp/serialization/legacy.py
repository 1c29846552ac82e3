"""The format before PyTorch 1.6: a stream of pickles, and the storages' bytes behind them.

magic number | protocol | what the writing machine is like | the object | the storages' keys | bytes

A plain pickle that PyTorch's tensors went into by themselves (`pickle.dump(tensor, file)`) holds
such a stream for each storage; both kinds are read here.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import IO, Any, Final

from skimp._engine.memory import storage as storages
from skimp._ops.create.storages import TypedStorage, UntypedStorage
from skimp.serialization import names
from skimp.serialization.limits import refuse, shown
from skimp.serialization.listed import Listed
from skimp.serialization.machine import MODERN, OLD, Machine
from skimp.serialization.pickler import Pickler
from skimp.serialization.pids import Reference, in_this_order, parsed
from skimp.serialization.places import Place, default_restore_location
from skimp.serialization.scan import modern
from skimp.serialization.unpickler import Unpickler, read

MAGIC: Final = 0x1950A86A20F9469CFC6C
PROTOCOL: Final = 1001
SYSTEM: Final = {
    "protocol_version": PROTOCOL,
    "little_endian": sys.byteorder == "little",
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}


def load(file: IO[bytes], place: Place, whole: bool, encoding: str) -> Any:
    """The object of a stream, or of a plain pickle."""
    found = read(_Plain(file, place, whole, encoding))
    if type(found) is not int or found != MAGIC:
        return found
    return _rest(file, place, whole, encoding)


def _rest(file: IO[bytes], place: Place, whole: bool, encoding: str) -> Any:
    """What lies behind the magic number."""
    if read(_words(file)) != PROTOCOL:
        refuse("a protocol of an unknown version")
    system = read(_words(file))
    little = system.get("little_endian") if type(system) is dict else None
    if type(little) is not bool:
        refuse(f"the byte order {shown(little)}")
    start = file.tell()
    index = _Index(file, whole, encoding)
    read(index)
    storages_of = index.read_storages(read(_words(file)), "little" if little else "big")
    end = file.tell()
    file.seek(start)
    found = read(_Loader(file, place, whole, encoding, storages_of))
    file.seek(end)
    return found


def _words(file: IO[bytes]) -> Unpickler:
    return Unpickler(file)


class _Blank:
    """Stands for whatever a name or a call gives, where only the references count."""

    def append(self, *_: Any) -> None:
        """Taken, and dropped."""

    extend = update = __setitem__ = append


class _Index(Machine):
    """Runs a pickle for its references to storages, and builds nothing.

    The bytes lie behind the pickle, and what is built of them is checked when it is built: so they
    are read first.
    """

    def __init__(self, file: IO[bytes], whole: bool, encoding: str) -> None:
        super().__init__(file, encoding)
        self.operations = MODERN | OLD if whole else MODERN
        self.users = frozenset((_Blank,))
        self._references: dict[str, Reference] = {}

    def find(self, module: str, name: str) -> Any:
        """The types of storages; nothing of anything else."""
        found = names.DEFAULT.get(".".join(modern(module, name, self.proto < 3)))
        return found if isinstance(found, type) and "Storage" in name else _Blank()

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Nothing."""
        return _Blank()

    def new(self, cls: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Nothing."""
        return _Blank()

    def fill(self, found: Any, state: Any) -> None:
        """Nothing."""

    def persistent_load(self, pid: Any) -> Any:
        """Note the reference, whose size must always be the same."""
        if not _is_module(pid):
            reference = parsed(pid)
            known = self._references.setdefault(reference.key, reference)
            if known.nbytes != reference.nbytes:
                refuse(f"the storage {reference.key} with two sizes")
        return _Blank()

    def read_storages(self, keys: Any, order: str) -> dict[str, storages.Storage]:
        """The bytes of each, in the order of the keys, behind its number of elements."""
        if type(keys) is not list or len(keys) != len(self._references):
            refuse("storages that are not those of its keys")
        found = {}
        for key in keys:
            reference = self._references.pop(key, None) if type(key) is str else None
            if reference is None:
                refuse(f"the storage {shown(key)}, to which it does not refer")
            count = int.from_bytes(self.take(8), "little", signed=True)
            width = 1 if reference.dtype is None else reference.dtype.itemsize
            if count * width != reference.nbytes:
                refuse(f"{count} elements of the storage {key}, which has another number")
            if reference.nbytes > self._end - self._file.tell():
                raise EOFError("Ran out of input: the file ends in a storage")
            new = storages.empty(reference.nbytes)
            _read_into(self._file, memoryview(new.flat().data))
            in_this_order(new.flat(), reference.dtype, order)
            found[key] = new
        return found


class _Loader(Unpickler):
    """The unpickler of a stream, whose storages are there already."""

    def __init__(
        self,
        file: IO[bytes],
        place: Place,
        whole: bool,
        encoding: str,
        found: dict[str, storages.Storage],
    ) -> None:
        super().__init__(file, whole, encoding)
        self._place = place
        self._found = found
        self._placed: dict[str, UntypedStorage] = {}

    def persistent_load(self, pid: Any) -> Any:
        """A storage, or a part of one: with (key, first element, number of elements) behind it."""
        if _is_module(pid):
            return pid[1]  # a class, and its source, which nobody needs
        reference = parsed(pid)
        found = self._placed.get(reference.key)
        if found is None:
            found = self._place(UntypedStorage(self._found[reference.key]), reference.tag)
            self._placed[reference.key] = found
        part = pid[5] if len(pid) > 5 else None
        if part is not None:
            found = _part(found, part, reference)
        if reference.dtype is None:
            return found
        return TypedStorage(wrap_storage=found, dtype=reference.dtype)


def _is_module(pid: Any) -> bool:
    return type(pid) is tuple and len(pid) == 4 and pid[0] in ("module", b"module")


def _part(whole: UntypedStorage, part: Any, reference: Reference) -> UntypedStorage:
    if type(part) is not tuple or len(part) != 3 or reference.dtype is None:
        refuse(f"a part of a storage {shown(part)}")
    if any(type(n) is not int or n < 0 for n in part[1:]):
        refuse(f"a part of a storage {shown(part)}")
    size = reference.dtype.itemsize
    if (part[1] + part[2]) * size > whole.nbytes():
        refuse("a part outside its storage")
    found = whole[part[1] * size : (part[1] + part[2]) * size]
    assert isinstance(found, UntypedStorage)
    return found


def _read_into(file: IO[bytes], target: memoryview) -> None:
    done = 0
    while done < len(target):
        piece = file.read(min(1 << 20, len(target) - done))
        if not piece:
            raise EOFError("Ran out of input: the file ends in a storage")
        target[done : done + len(piece)] = piece
        done += len(piece)


class _Plain(Unpickler):
    """A pickle of its own, whose storages are streams inside it."""

    def __init__(self, file: IO[bytes], place: Place, whole: bool, encoding: str) -> None:
        super().__init__(file, whole, encoding)
        self._place = place
        self._storage_of = self._stream  # one object, whose identity is noted

    def find(self, module: str, name: str) -> Any:
        """As ever, and the function that the pickles of PyTorch's storages call."""
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            row = Listed(self._storage_of, self._storage_of)
            self._named[id(row.value)] = row
            return row.value
        return super().find(module, name)

    def _stream(self, data: Any) -> Any:
        """torch.storage._load_from_bytes: the one storage in a stream that holds no others."""
        if type(data) is not bytes:
            refuse(f"a storage in {shown(data)}")
        stream = io.BytesIO(data)
        if read(_words(stream)) != MAGIC:
            refuse("a storage in bytes that are no stream")
        found = _rest(stream, self._place, False, "utf-8")
        if not isinstance(found, TypedStorage | UntypedStorage):
            refuse(f"a storage that is {shown(found)}")
        return found


def load_from_bytes(data: bytes) -> Any:
    """torch.storage._load_from_bytes, which the standard library's pickle calls for a tensor of
    PyTorch's.
    """
    return load(io.BytesIO(data), default_restore_location, False, "utf-8")


# -- writing --------------------------------------------------------------------------------------


def save(obj: Any, file: IO[bytes], protocol: int) -> None:
    """Write the stream."""
    pickled = io.BytesIO()
    pickler = LegacyPickler(pickled, protocol)
    pickler.dump(obj)
    for word in (MAGIC, PROTOCOL, SYSTEM):
        pickle.dump(word, file, protocol)
    file.write(pickled.getbuffer())
    keys = [str(i) for i in range(len(pickler.storages))]
    pickle.dump(keys, file, protocol)
    for key, storage in zip(keys, pickler.storages, strict=True):
        width = pickler.widths[key]
        file.write((len(storage) // width).to_bytes(8, "little"))
        file.write(storage.flat().data)


class LegacyPickler(Pickler):
    """References end with the part of the storage that is meant: None, for all of it."""

    def __init__(self, file: IO[bytes], protocol: int) -> None:
        super().__init__(file, protocol)
        self.widths: dict[str, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """("storage", type, key, place, number of elements, None)."""
        found = super().persistent_id(obj)
        if found is None:
            return None
        if isinstance(obj, UntypedStorage):
            self.widths.setdefault(found[2], 1)
        else:
            self.widths[found[2]] = obj.dtype.itemsize
        return *found, None
