"""PyTorch's types by element: `FloatTensor`, `LongTensor` and so on, and `FloatStorage`,
`LongStorage` and so on.

`FloatTensor(2, 3)` makes a tensor, `isinstance(x, FloatTensor)` asks for its dtype, and there are
no instances of the types themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from skimp._engine.memory.call_site import named
from skimp._engine.memory.layout import check_shape
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Tensor, empty
from skimp._ops.create.creation import tensor
from skimp._ops.create.storages import TypedStorage, UntypedStorage, on_storage

KINDS: Final[Mapping[str, dtypes.dtype]] = {
    "Float": dtypes.float32,
    "Double": dtypes.float64,
    "Half": dtypes.float16,
    "BFloat16": dtypes.bfloat16,
    "Long": dtypes.int64,
    "Int": dtypes.int32,
    "Short": dtypes.int16,
    "Char": dtypes.int8,
    "Byte": dtypes.uint8,
    "Bool": dtypes.bool,
    "ComplexFloat": dtypes.complex64,
    "ComplexDouble": dtypes.complex128,
}


_TensorMeta = type(Tensor)  # libraries annotate with it


class _TensorType(type):
    """The class of `FloatTensor` and the like."""

    dtype: dtypes.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype

    @named("Tensor")
    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        return made(cls.dtype, args)

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


def made(dtype: dtypes.dtype, args: tuple[Any, ...], of_any: bool = False) -> Tensor:
    """What `FloatTensor(...)` gives: of sizes uninitialised elements, of data a tensor. Tensors of
    other types are refused, but by `Tensor` (`of_any`).
    """
    if len(args) == 1 and isinstance(args[0], (UntypedStorage, TypedStorage)):
        given = args[0]
        return on_storage(
            (given if isinstance(given, UntypedStorage) else given.untyped())._storage, dtype
        )
    if len(args) == 1 and isinstance(args[0], np.generic) and args[0].dtype.kind in "iu":
        args = (int(args[0]),)
    if len(args) == 1 and isinstance(args[0], (bool, float, complex, np.generic)):
        kind = type(args[0])
        space = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        raise TypeError(f"new(): data must be a sequence (got {space}{kind.__name__})")
    if len(args) == 1 and not isinstance(args[0], int) and type(args[0]).__name__ != "Size":
        data = args[0]
        if isinstance(data, Tensor) and data.dtype is not dtype and not of_any:
            raise TypeError(f"expected {dtype} (got {data.dtype})")
        return data if isinstance(data, Tensor) else tensor(data, dtype=dtype)
    shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    whole = bool(shape) or type(shape).__name__ == "Size"  # nothing, or (), is no size
    sizes = tuple([int(n) for n in shape]) if whole else (0,)
    check_shape(sizes)
    return empty(sizes, dtype)


class _StorageType(type):
    """The class of `FloatStorage` and the like."""

    dtype: dtypes.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    @named("Storage")
    def __call__(cls, *args: Any) -> TypedStorage:
        if len(args) == 1 and not isinstance(args[0], int):
            return TypedStorage(
                wrap_storage=UntypedStorage(tensor(args[0], dtype=cls.dtype)._storage),
                dtype=cls.dtype,
            )
        return TypedStorage(*(args or (0,)), dtype=cls.dtype)


TENSOR_TYPES: Final[dict[dtypes.dtype, _TensorType]] = {
    dtype: _TensorType(f"{kind}Tensor", (), {"dtype": dtype, "__module__": "torch"})
    for kind, dtype in KINDS.items()
}
STORAGE_TYPES: Final[dict[dtypes.dtype, _StorageType]] = {
    dtype: _StorageType(f"{kind}Storage", (), {"dtype": dtype, "__module__": "torch"})
    for kind, dtype in KINDS.items()
}
NAMES: Final[dict[str, type]] = {
    t.__name__: t for t in (*TENSOR_TYPES.values(), *STORAGE_TYPES.values())
}


def type_of(dtype: dtypes.dtype) -> str:
    """What `Tensor.type()` answers."""
    return f"torch.{scalar_type_name(dtype)}Tensor"


def dtype_of(kind: Any) -> dtypes.dtype | None:
    """The dtype that a tensor type or its name, after `torch.`, means; None where it is neither."""
    if isinstance(kind, _TensorType):
        return kind.dtype
    room, _, name = str(kind).rpartition(".")
    found = NAMES.get(name) if room.startswith("torch") else None
    return found.dtype if isinstance(found, _TensorType) else None
