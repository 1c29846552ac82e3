"""What the standard library's pickle writes of tensors. While skimp stands for `torch` it is what
PyTorch's own tensors write, so that PyTorch reads it: PyTorch's builders by name, and each storage
as a stream of the format before 1.6. Tensors on one storage share it afterwards, as ever.
"""

from __future__ import annotations

import io
from typing import Any
from weakref import WeakValueDictionary

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.storages import TypedStorage
from skimp.serialization import legacy, pickler, rebuild

Parts = tuple[Any, ...]


_shared: WeakValueDictionary[tuple[int, dtypes.dtype], TypedStorage] = WeakValueDictionary()


def _one(typed: TypedStorage) -> TypedStorage:
    """The object that stands for the storage, so that a pickle holds it once, whichever tensors are
    on it.
    """
    return _shared.setdefault((id(typed.untyped()._storage), typed.dtype), typed)


def _with_one(parts: Parts) -> Parts | None:
    """A builder and its arguments, the storage as the object for it; None where it has no type."""
    build, args = parts[:2]
    if isinstance(args[0], TypedStorage):
        return build, (_one(args[0]), *args[1:])
    if build is rebuild.from_type:
        inner = _with_one((args[0], args[2]))
        return None if inner is None else (build, (*args[:2], inner[1], *args[3:]))
    return parts if build is rebuild.without_bytes or isinstance(args[0], Tensor) else None


def of_tensor(t: Tensor) -> Parts | None:
    """PyTorch's builder and its arguments; None for what its files don't hold."""
    return _with_one(pickler.tensor_parts(t))


def of_sparse(t: Any) -> Parts:
    """The same for a sparse tensor."""
    return pickler.sparse_parts(t)


def of_storage(s: TypedStorage) -> Parts:
    """The same for a storage."""
    file = io.BytesIO()
    legacy.save(s, file, 2)
    return legacy.load_from_bytes, (file.getvalue(),)
