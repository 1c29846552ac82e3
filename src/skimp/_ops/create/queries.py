"""What programs ask about values and types: `is_tensor`, `typename`, `Tensor.type`, the default
tensor type.
"""

from __future__ import annotations

import sys
from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.overrides import DisableTorchFunctionSubclass
from skimp._engine.dispatch.row import ORDINARY, sampled
from skimp._engine.memory.call_site import named, warn_once
from skimp._engine.tensor import devices, dtypes, promotion
from skimp._engine.tensor.fields import become
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create import tensor_types
from skimp._ops.create.storages import TypedStorage, UntypedStorage

__all__ = [
    "compiled_with_cxx11_abi", "get_device_module", "has_lapack", "has_mkl", "has_openmp",
    "has_spectral", "init_num_threads", "is_storage", "is_tensor", "is_vulkan_available",
    "set_default_tensor_type", "typename",
]  # fmt: skip


def is_tensor(obj: Any, /) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any, /) -> bool:
    """Whether it is a storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


def typename(obj: Any, /) -> str:
    """The name of its type as PyTorch's messages have it."""
    if isinstance(obj, Tensor):
        return f"torch.{promotion.scalar_type_name(obj.dtype)}Tensor"
    cls = obj if isinstance(obj, type) else type(obj)
    module = cls.__module__
    if module in (None, "builtins", "__builtin__"):
        return cls.__qualname__
    return f"{module}.{cls.__qualname__}"


def set_default_tensor_type(t: Any, /) -> None:
    """Let floating-point tensors be of this type: `torch.DoubleTensor` or its name.

    Raises: TypeError for what is no floating-point tensor type.
    """
    dtype = tensor_types.dtype_of(t)
    if dtype is None:
        raise TypeError(f"invalid type object: {t!r} is no tensor type")
    warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives."
    )
    promotion.set_default_dtype(dtype)


def get_device_module(device: Any = None) -> Any:
    """The module with a device's functions.

    Raises: RuntimeError for a device of no known name.
    """
    kind = "cpu" if device is None else devices.device(device).type
    if kind not in ("cpu", "cuda"):
        raise RuntimeError(f"Invalid device '{kind}': skimp has no module for it")
    return sys.modules[f"skimp.{kind}"]  # both are there, above this room


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),), (tensor([[1, -2, 3]]), "torch.FloatTensor")])
def type_(
    self: Tensor,
    dtype: str | type | dtypes.dtype | None = None,
    non_blocking: bool = False,
    **_: Any,
) -> Any:
    """The name of the tensor's type; given a type, its name or a dtype, the tensor as that.

    Shape: any; the result's is the input's.
    Raises: TypeError for what names no type.
    Memory: the input itself where it has the dtype, else a new tensor; no tensor without a type.
    """
    if dtype is None:
        name = tensor_types.type_of(self.dtype)
        return name if self._skimp_meta is None else name.replace("torch.", "torch.meta.")
    if dtype is Tensor or dtype == "torch.Tensor":
        dtype = promotion.get_default_dtype()
    wanted = tensor_types.dtype_of(dtype) or dtype
    if isinstance(wanted, (str, type)):
        raise ValueError(f"invalid type: {getattr(wanted, '__name__', wanted)!r}")
    if not isinstance(wanted, dtypes.dtype):
        raise TypeError("dtype must be a type, str, or dtype object")
    return self.to(wanted)


@sampled(lambda tensor: [(tensor([[1, -2, 3]]), tensor([1]).int())])
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype, and on the device, of another.

    Shape: any; the result's is the input's.
    Raises: nothing.
    Memory: the input itself where it has the dtype, else a new tensor.
    """
    if self._hollow or other._hollow:
        return self.to(other)
    return self.to(other._dtype)


def _of_same_type(self: Tensor, other: Tensor) -> Tensor | None:
    return self if type(other) in ORDINARY and other._dtype is self._dtype else None


@sampled(lambda tensor: [(tensor([1.0]), [2.0, 3.0])])
def new(self: Tensor, *args: Any, device: Any = None, size: Any = None, data: Any = None) -> Tensor:
    """A tensor of this dtype: of sizes uninitialised, of data with its values.

    Shape: of the sizes, or the data's.
    Raises: RuntimeError for a negative size and for data of no known dtype.
    """
    args = args or tuple(size or ()) if data is None else (data,)
    made = tensor_types.made(self.dtype, args)
    return made.detach() if made is (args[0] if args else None) else made


@sampled(lambda tensor: [(tensor([1.0]),)])
def storage_type(self: Tensor) -> Any:
    """The class of the tensor's typed storage: `torch.FloatStorage` and the like.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: no tensor is made.
    """
    return tensor_types.STORAGE_TYPES.get(self.dtype, TypedStorage)


@sampled(lambda tensor: [(tensor([1.0]),)])
def is_distributed(input: Tensor) -> bool:
    """Whether the tensor is spread over processes: never.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: no tensor is made.
    """
    return False


def is_vulkan_available() -> bool:
    """Whether tensors can live on such a device: never."""
    return False


def compiled_with_cxx11_abi() -> bool:
    """Which C++ library a program's extensions would need: there is nothing to link with."""
    return True


def init_num_threads() -> None:
    """There is nothing to prepare."""


def _grad_dtype(self: Tensor) -> Any:
    """The dtype of the tensor's gradient: its own."""
    return self.dtype


def _set_grad_dtype(self: Tensor, dtype: Any) -> None:
    if dtype is not self.dtype:
        raise RuntimeError(
            f"grad_dtype: gradients have the dtype of their tensor, {self.dtype}; got {dtype}"
        )


type_.__name__ = "type"
for _f in (type_, new, storage_type):
    export(_f.__name__, _f, namespaces=())
export("type_as", type_as, namespaces=(), fast=_of_same_type)
export("is_distributed", is_distributed)
setattr(Tensor, "name", None)  # noqa: B010  (a name that PyTorch's tests give; programs set theirs)
setattr(Tensor, "volatile", False)  # noqa: B010  (what no_grad has replaced)
setattr(Tensor, "grad_dtype", property(_grad_dtype, _set_grad_dtype))  # noqa: B010
has_lapack = has_mkl = has_openmp = has_spectral = True  # as PyTorch's builds for CPUs say


def _plain(t: Tensor) -> Tensor:
    """The same bytes, of no subclass."""
    with DisableTorchFunctionSubclass():
        return t.detach()


@named("Tensor")
def _new(cls: type[Tensor], *args: Any, device: Any = None, **_: Any) -> Tensor:
    """`torch.Tensor(2, 3)`, `torch.Tensor([1, 2])`: of the default dtype, but for tensors."""
    made = tensor_types.made(promotion.get_default_dtype(), args, of_any=True)
    if cls is Tensor:
        return made if made._skimp_on_fast_path else _plain(made)
    new = made.detach() if made is (args[0] if args else None) else made
    return become(new, cls)  # type: ignore[no-any-return]


Tensor.__new__ = _new  # type: ignore[method-assign, method-assign]
