"""What programs ask about values and types: `is_tensor`, `typename`, `Tensor.type`, the default
tensor type.
"""

from __future__ import annotations

from typing import Any

from skimp import promotion, tensor_types
from skimp._tensor import Tensor
from skimp.nn.parameter import typename as typename_of
from skimp.ops.forms import export
from skimp.ops.storages import TypedStorage, UntypedStorage

__all__ = ["get_device_module", "is_storage", "is_tensor", "set_default_tensor_type", "typename"]


def is_tensor(obj: Any, /) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any, /) -> bool:
    """Whether it is a storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


def typename(obj: Any, /) -> str:
    """The name of its type as PyTorch's messages have it."""
    return typename_of(obj)


def set_default_tensor_type(t: Any, /) -> None:
    """Let floating-point tensors be of this type: `torch.DoubleTensor` or its name."""
    dtype = tensor_types.dtype_of(t)
    if dtype is None:
        raise TypeError(f"invalid type object: {t!r} is no tensor type")
    promotion.set_default_dtype(dtype)


def get_device_module(device: Any = None) -> Any:
    """The module with a device's functions."""
    from skimp import cpu, cuda, devices

    kind = "cpu" if device is None else devices.device(device).type
    if kind not in ("cpu", "cuda"):
        raise RuntimeError(f"Invalid device '{kind}': skimp has no module for it")
    return cuda if kind == "cuda" else cpu


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **_: Any) -> Any:
    """The name of the tensor's type; given a type, its name or a dtype, the tensor as that."""
    if dtype is None:
        return tensor_types.type_of(self.dtype)
    wanted = tensor_types.dtype_of(dtype) or dtype
    if isinstance(wanted, (str, type)):
        raise ValueError(f"invalid type: {wanted!r}")
    return self.to(wanted)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype of another."""
    return self.to(other.dtype)


type_.__name__ = "type"
for _f in (type_, type_as):
    export(_f.__name__, _f, namespaces=())


def _new(cls: type[Tensor], *args: Any, device: Any = None, **_: Any) -> Tensor:
    """`torch.Tensor(2, 3)` and `torch.Tensor([1, 2])`: of the default dtype, whatever the data."""
    made = tensor_types.made(promotion.get_default_dtype(), args)
    if cls is Tensor:
        return made
    new = made.detach() if made is (args[0] if args else None) else made
    new.__class__ = cls
    return new


Tensor.__new__ = _new  # type: ignore[method-assign, assignment]
