"""Storages as Python sees them, and questions about who shares what."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory import storage as storages
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.meta import MetaStorage, without_bytes
from skimp._engine.memory.users import users
from skimp._engine.tensor import dtypes, printing, promotion
from skimp._engine.tensor.devices import CPU, META, device, place
from skimp._engine.tensor.tensor import Tensor, wrap
from skimp._kernels import bare

F = TypeVar("F", bound=Callable[..., Any])


def _count(nbytes: Any) -> int:
    """A number of bytes, or PyTorch's error."""
    if isinstance(nbytes, str):
        raise RuntimeError(
            "torch.UntypedStorage(): tried to construct a storage from a sequence (str), but one "
            "of the items was of type str instead of int"
        )
    count = int(nbytes)
    if count < 0:
        raise RuntimeError(f"alloc_cpu() seems to have been called with negative number: {count}")
    return count


# PyTorch's own objects: programs add up what `sys.getsizeof` says, which is an object's size and of
# what stands before it. From CPython 3.12 on that is where weak references are.
_UNTYPED, _TYPED = (40, 16) if sys.version_info >= (3, 12) else (48, 40)


class UntypedStorage:
    """The bytes that a tensor and its views share."""

    __slots__ = ("_storage",)

    def __init__(self, nbytes: int | storages.Storage = 0, *, device: Any = None) -> None:
        if isinstance(nbytes, storages.Storage):
            self._storage = nbytes
        elif place(device) is META:
            self._storage = without_bytes(int(nbytes))
        else:
            self._storage = storages.empty(_count(nbytes))

    @classmethod
    def from_file(
        cls, filename: Any, shared: bool = False, nbytes: int = 0, **_: Any
    ) -> UntypedStorage:
        """The first bytes of a file, read when they are looked at; writes go to the file only if
        `shared`, which makes it so long.
        """
        path = os.fspath(filename)
        if nbytes == 0:
            return cls(0)
        try:
            if shared:
                with open(path, "ab") as file:
                    if file.tell() < nbytes:
                        file.truncate(nbytes)
            elif nbytes > (size := os.path.getsize(path)):
                raise RuntimeError(f"{path} has {size} bytes, fewer than the {nbytes} asked for")
            array = np.memmap(path, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        except OSError as error:
            how = "read-write" if shared else "read-only"
            raise RuntimeError(
                f"unable to open file <{path}> in {how} mode: {error.strerror} ({error.errno})"
            ) from error
        return cls(storages.external(np.asarray(array)))

    def __sizeof__(self) -> int:
        """With the bytes, as PyTorch counts it: `sys.getsizeof` is what programs ask."""
        return _UNTYPED + self.nbytes()

    def nbytes(self) -> int:
        """Bytes that tensors may use."""
        return len(self._storage)

    size = __len__ = nbytes

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def data_ptr(self) -> int:
        """The address of the first byte; materializes."""
        return self._storage.hand_out()

    @property
    def device(self) -> device:
        return META if isinstance(self._storage, MetaStorage) else CPU

    @property
    def is_cuda(self) -> bool:
        return False

    def _bytes(self) -> Any:
        return self._storage.flat()

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            if i.step not in (None, 1):
                raise TypeError(f"Trying to slice with a step of {i.step}, but only a step of 1 is "
                                "supported")  # fmt: skip
            return UntypedStorage(storages.external(self._storage.export()[i]))
        if isinstance(i, (int, np.integer)) and not -len(self) <= i < len(self):
            raise IndexError(f"index {i} out of range for storage of size {len(self)}")
        return int(self._bytes()[i])

    def __setitem__(self, i: Any, value: Any) -> None:
        if not isinstance(i, (int, np.integer, slice)):
            raise RuntimeError(f"can't index a torch.UntypedStorage with {type(i).__name__}")
        if not isinstance(value, (int, np.integer)):
            raise RuntimeError(
                "can only set storage content with a int types, but got "
                f"{type(value).__name__} instead"
            )
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError("int too big to convert")
        if not isinstance(i, slice) and not 0 <= i < len(self):
            raise RuntimeError("out of bounds")
        self._storage.will_write()
        self._bytes()[i] = value & 255

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        """The bytes as ints."""
        found: list[int] = self._bytes().tolist()
        return found

    def clone(self) -> UntypedStorage:
        """A copy of the bytes."""
        new = UntypedStorage(len(self))
        new._bytes()[:] = self._bytes()
        return new

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Write the bytes of another storage of this size."""
        self._storage.will_write()
        self._bytes()[:] = source._bytes()
        return self

    def fill_(self, value: int) -> UntypedStorage:
        """Write one value over all bytes."""
        self._storage.will_write()
        self._bytes()[:] = value
        return self

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Another number of bytes; the old ones stay as far as they reach."""
        if nbytes < 0:
            raise RuntimeError(f"resize_(): a storage of {nbytes} bytes can't be")
        self._storage.resize(nbytes)
        return self

    def cpu(self) -> UntypedStorage:
        return self

    def is_shared(self) -> bool:
        """Whether another process may see the bytes: storages of this version never are."""
        return False

    def element_size(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and other._storage is self._storage

    def __hash__(self) -> int:
        return hash(id(self._storage))

    def __repr__(self) -> str:
        elements = None if self.device is META else self._bytes()
        return printing.storage_str(
            f"UntypedStorage(device={self.device})", self.nbytes(), elements
        )


class TypedStorage:
    """The bytes that a tensor shares, as elements of its dtype: indexing gives plain numbers."""

    __slots__ = ("__weakref__", "_untyped", "dtype")

    def __init__(
        self, *args: Any, wrap_storage: Any = None, dtype: Any = None, _internal: bool = False
    ) -> None:
        self.dtype: dtypes.dtype = dtype or dtypes.float32
        self._untyped: UntypedStorage = (
            wrap_storage
            if wrap_storage is not None
            else UntypedStorage(int(args[0]) * self.dtype.itemsize)
        )

    def _array(self) -> Any:
        flat = self._untyped._bytes()
        n = len(flat) // self.dtype.itemsize
        return np.ndarray((n,), self.dtype.np, flat) if n else np.empty(0, self.dtype.np)

    def untyped(self) -> UntypedStorage:
        """The same bytes without a type."""
        return self._untyped

    def __len__(self) -> int:
        return self._untyped.nbytes() // self.dtype.itemsize

    def size(self) -> int:
        """Number of elements."""
        return len(self)

    def __sizeof__(self) -> int:
        """With the bytes, as PyTorch counts it: `sys.getsizeof` is what programs ask."""
        return _TYPED + self.nbytes()

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._untyped.nbytes()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first byte; materializes."""
        return self._untyped.data_ptr()

    @property
    def device(self) -> device:
        return self._untyped.device

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(i, (int, np.integer)):
            raise RuntimeError(
                f"Tensors used as indices of a storage: expected an int, got {type(i).__name__}"
            )
        if not -len(self) <= i < len(self):
            raise IndexError(f"index {i} out of range for storage of size {len(self)}")
        found = self._array()[i].item()
        return float(found) if self.dtype in dtypes.FOREIGN else found

    def __setitem__(self, i: Any, value: Any) -> None:
        self._untyped._storage.will_write()
        self._array()[i] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        a = self._array()
        found: list[Any] = (a.astype(np.float32) if self.dtype in dtypes.FOREIGN else a).tolist()
        return found

    def __repr__(self) -> str:
        elements = None if self.device is META else self._array()
        kind = f"TypedStorage(dtype={self.dtype!r}, device={self.device})"
        return printing.storage_str(kind, len(self), elements)


def method(f: F) -> F:
    export(f.__name__, f, namespaces=())
    return f


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The bytes that this tensor shares with its views."""
    return UntypedStorage(self._storage)


export("untyped_storage", untyped_storage, namespaces=(), looks=True)


@method
def storage(self: Tensor) -> TypedStorage:
    """The bytes that this tensor shares with its views, as elements of its dtype.

    Shape: any.
    Raises: nothing.
    Memory: no byte moves: the storage is the tensor's.
    """
    return TypedStorage(wrap_storage=UntypedStorage(self._storage), dtype=self._dtype)


@method
@sampled(lambda tensor: [(tensor([1.0]), tensor([1.0]))])
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both tensors are the same part of the same storage.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: no tensor is made.
    """
    return self._storage is tensor._storage and self._skimp_layout_of() == tensor._skimp_layout_of()


def shares_memory(a: Tensor, b: Tensor) -> bool:
    """Whether some byte belongs to both tensors.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: no tensor is made.
    """
    one, two = a._skimp_layout_of(), b._skimp_layout_of()
    if a._storage is not b._storage:
        if not (a._storage.exported and b._storage.exported):
            return False
        return bool(bare.shares_memory(a._skimp_array(), b._skimp_array()))
    if 0 in one.shape or 0 in two.shape:
        return False
    return bool(bare.shares_memory(_footprint(a), _footprint(b)))


class _Place:
    """A layout as an array that is never read, so that nothing materializes."""

    def __init__(self, t: Tensor) -> None:
        layout, size = t._skimp_layout_of(), t._dtype.itemsize
        strides = tuple([s * size for s in layout.strides])
        start = (1 << 40) + layout.offset * size
        self.__array_interface__ = {
            "data": (start, True),
            "shape": layout.shape,
            "strides": strides,
            "typestr": f"|V{size}",
            "version": 3,
        }


def _footprint(t: Tensor) -> Any:
    return np.asarray(_Place(t))


def aliases(x: Tensor) -> list[Tensor]:
    """The live tensors on x's storage, x among them.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: the list holds the tensors themselves, which share x's bytes.
    """
    return [t for t in users(x._storage) if isinstance(t, Tensor)]


def from_file(
    filename: Any, shared: bool | None = None, size: int | None = 0, *, dtype: Any = None, **_: Any
) -> Tensor:
    """A flat tensor of the first elements of a file; writes go to the file only if `shared`.

    Shape: (size,).
    Raises: RuntimeError for a file that cannot be opened or is too short.
    Memory: none is allocated: the tensor's bytes are a map of the file.
    """
    wanted = promotion.get_default_dtype() if dtype is None else dtype
    nbytes = (size or 0) * wanted.itemsize
    return on_storage(UntypedStorage.from_file(filename, bool(shared), nbytes)._storage, wanted)


export("from_file", from_file, method=False)


def on_storage(s: storages.Storage, dtype: dtypes.dtype) -> Tensor:
    """A flat tensor of all elements of a storage."""
    n = len(s) // dtype.itemsize
    return wrap(s, Layout((n,), (1,), 0), dtype)
