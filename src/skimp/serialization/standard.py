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
from skimp._ops.create import pickling
from skimp._ops.create.storages import TypedStorage
from skimp._ops.sparse.tensor import SparseTensor
from skimp.nn.parameter import Parameter
from skimp.serialization import legacy, pickler, rebuild
from skimp.serialization.names import THEIRS

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


_parameter: Any = Parameter.__reduce_ex__


def _reduce(self: Tensor, protocol: Any) -> Parts:
    own: Any = _parameter if isinstance(self, Parameter) else pickling.reduce
    parts: Parts | None = None
    if Tensor.__module__ == THEIRS:
        parts = _with_one(pickler.tensor_parts(self))
    return parts or own(self, protocol)


def _reduce_sparse(self: SparseTensor, protocol: Any) -> Parts:
    return pickler.sparse_parts(self)


def _reduce_storage(self: TypedStorage, protocol: Any) -> Parts:
    if Tensor.__module__ != THEIRS:
        own: Any = object.__reduce_ex__
        return own(self, protocol)  # type: ignore[no-any-return]
    file = io.BytesIO()
    legacy.save(self, file, 2)
    return legacy.load_from_bytes, (file.getvalue(),)


def register_types() -> None:
    """Let tensors write it."""
    kinds: tuple[tuple[Any, Any], ...] = (
        (Tensor, _reduce), (Parameter, _reduce), (SparseTensor, _reduce_sparse),
        (TypedStorage, _reduce_storage),
    )  # fmt: skip
    for kind, f in kinds:
        kind.__reduce_ex__ = f
