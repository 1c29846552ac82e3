"""How tensors answer the standard library's pickle: as `serialization.standard` says, which is
loaded with the first that asks it.
"""

from __future__ import annotations

import importlib
from typing import Any

from skimp._compat.table import THEIRS
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create import pickling
from skimp._ops.create.storages import TypedStorage
from skimp._ops.sparse.tensor import SparseTensor
from skimp.nn.parameter import Parameter

Parts = tuple[Any, ...]
_parameter: Any = Parameter.__reduce_ex__


def _standard() -> Any:
    return importlib.import_module("skimp.serialization.standard")


def _reduce(self: Tensor, protocol: Any) -> Parts:
    own: Any = _parameter if isinstance(self, Parameter) else pickling.reduce
    parts: Parts | None = None
    if Tensor.__module__ == THEIRS:
        parts = _standard().of_tensor(self)
    return parts or own(self, protocol)


def _reduce_sparse(self: SparseTensor, protocol: Any) -> Parts:
    return _standard().of_sparse(self)  # type: ignore[no-any-return]


def _reduce_storage(self: TypedStorage, protocol: Any) -> Parts:
    if Tensor.__module__ != THEIRS:
        own: Any = object.__reduce_ex__
        return own(self, protocol)  # type: ignore[no-any-return]
    return _standard().of_storage(self)  # type: ignore[no-any-return]


def register_types() -> None:
    """Let tensors answer so."""
    kinds: tuple[tuple[Any, Any], ...] = (
        (Tensor, _reduce), (Parameter, _reduce), (SparseTensor, _reduce_sparse),
        (TypedStorage, _reduce_storage),
    )  # fmt: skip
    for kind, f in kinds:
        kind.__reduce_ex__ = f
