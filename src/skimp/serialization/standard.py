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


class _Stream:
    """A storage that a pickle holds once, whichever tensors are on it."""

    __slots__ = ("__weakref__", "typed")

    def __init__(self, typed: TypedStorage) -> None:
        self.typed = typed

    def __reduce__(self) -> Parts:
        file = io.BytesIO()
        legacy.save(self.typed, file, 2)
        return legacy.load_from_bytes, (file.getvalue(),)


_streams: WeakValueDictionary[tuple[int, dtypes.dtype], _Stream] = WeakValueDictionary()


def _stream(typed: TypedStorage) -> _Stream:
    key = id(typed.untyped()._storage), typed.dtype
    found = _streams.get(key)
    if found is None:
        found = _streams[key] = _Stream(typed)
    return found


def _streamed(parts: Parts) -> Parts | None:
    """A builder and its arguments with the storage as a stream; None where it has no type."""
    build, args = parts[:2]
    if isinstance(args[0], TypedStorage):
        return build, (_stream(args[0]), *args[1:])
    if build is rebuild.from_type:
        inner = _streamed((args[0], args[2]))
        return None if inner is None else (build, (*args[:2], inner[1], *args[3:]))
    return parts if build is rebuild.without_bytes or isinstance(args[0], Tensor) else None


_parameter: Any = Parameter.__reduce_ex__


def _reduce(self: Tensor, protocol: Any) -> Parts:
    own: Any = _parameter if isinstance(self, Parameter) else pickling.reduce
    parts: Parts | None = None
    if Tensor.__module__ == THEIRS:
        parts = _streamed(pickler.tensor_parts(self))
    return parts or own(self, protocol)


def _reduce_sparse(self: SparseTensor, protocol: Any) -> Parts:
    return pickler.sparse_parts(self)


def _reduce_storage(self: TypedStorage, protocol: Any) -> Parts:
    own: Any = object.__reduce_ex__
    return _stream(self).__reduce__() if Tensor.__module__ == THEIRS else own(self, protocol)


def register_types() -> None:
    """Let tensors write it."""
    kinds: tuple[tuple[Any, Any], ...] = (
        (Tensor, _reduce), (Parameter, _reduce), (SparseTensor, _reduce_sparse),
        (TypedStorage, _reduce_storage),
    )  # fmt: skip
    for kind, f in kinds:
        kind.__reduce_ex__ = f
