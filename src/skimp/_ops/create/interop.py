"""Other libraries' arrays on the same bytes: DLPack, buffers, NumPy's protocols, `asarray`.

Each way out goes through `exported`, so that the array keeps the block alive and nothing that reads
it is deferred; each way in makes an external storage that keeps the owner alive.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.overrides import converted
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory import storage as storages
from skimp._engine.memory.call_site import warn, warn_once
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import devices, dtypes, promotion
from skimp._engine.tensor.tensor import Array, Tensor, wrap
from skimp._ops.create import creation
from skimp._ops.create.access import exported
from skimp._ops.create.arrays import Writable, on_array
from skimp._ops.create.options import finish
from skimp._ops.create.storages import UntypedStorage
from skimp._ops.shape.conversions import to
from skimp._ops.shape.copies import clone

READ_ONLY = (
    "The given buffer is not writable, and PyTorch does not support non-writable tensors. This "
    "means you can write to the underlying (supposedly non-writable) buffer using the tensor. You "
    "may want to copy the buffer to protect its data or make it writable before converting it to "
    "a tensor. (skimp: a write raises ValueError)"
)
FOLLOWS = (
    "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. "
    "Pass requires_grad=True or requires_grad=False explicitly to choose."
)
CAPSULES = ('"dltensor"', '"dltensor_versioned"')


# -- DLPack ---------------------------------------------------------------------------------------


class DLDeviceType(IntEnum):
    """Where memory lives, as DLPack numbers it."""

    kDLCPU = 1  # noqa: N815
    kDLCUDA = 2  # noqa: N815
    kDLCUDAHost = 3  # noqa: N815
    kDLOpenCL = 4  # noqa: N815
    kDLVulkan = 7  # noqa: N815
    kDLMetal = 8  # noqa: N815
    kDLVPI = 9  # noqa: N815
    kDLROCM = 10  # noqa: N815
    kDLROCMHost = 11  # noqa: N815
    kDLExtDev = 12  # noqa: N815
    kDLCUDAManaged = 13  # noqa: N815
    kDLOneAPI = 14  # noqa: N815
    kDLWebGPU = 15  # noqa: N815
    kDLHexagon = 16  # noqa: N815
    kDLMAIA = 17  # noqa: N815


HERE = (DLDeviceType.kDLCPU, 0)


def dlpack(
    self: Tensor,
    *,
    stream: int | None = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A capsule on the tensor's bytes, for another library's `from_dlpack`."""
    if self._rg:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    if stream not in (None, -1):
        raise AssertionError("stream should be None on cpu.")
    return capsule(self, max_version, dl_device, copy)


def capsule(
    t: Tensor,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    if t._conj:
        raise BufferError("Can't export tensors with the conjugate bit set")
    if t._skimp_neg:
        raise BufferError(
            "Can't export tensors with the negative bit set; use tensor.resolve_neg()"
        )
    if t._dtype in dtypes.FOREIGN:
        whole = "int16" if t._dtype is dtypes.bfloat16 else "uint8"
        raise BufferError(
            f"Can't export {t._dtype.name} through DLPack: NumPy, which makes the capsule, has no "
            f"such type. Export tensor.view(torch.{whole}), or tensor.float()."
        )
    if dl_device is not None and tuple(dl_device) != HERE:
        raise BufferError(f"Can't export a tensor on the CPU to the device {tuple(dl_device)}")
    return exported(t).__dlpack__(max_version=max_version, dl_device=HERE, copy=copy)


def dlpack_device(self: Tensor) -> tuple[DLDeviceType, int]:
    return HERE


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule on the tensor's bytes (of a tensor that requires grad as well).

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: BufferError for lazy conjugates.
    Memory: none is made: the capsule shares the tensor's bytes.
    """
    return capsule(tensor)


class _Producer:
    """A bare capsule as NumPy wants it: in the hands of somebody with `__dlpack__`."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **words: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[DLDeviceType, int]:
        return HERE


@sampled(lambda tensor: [(tensor([1.0, 2.0]),)])
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the bytes of another library's array (anything with `__dlpack__`), or of a
    capsule.

    Shape: the array's.
    Dtypes: those that DLPack has.
    Raises: RuntimeError for what is no capsule and has no `__dlpack__`.
    Memory: none is made: the tensor shares the array's bytes.
    """
    if device is not None:
        devices.check(device)
    if not hasattr(ext_tensor, "__dlpack__"):
        if device is not None or copy is not None:
            raise AssertionError(
                "device and copy kwargs not supported when ext_tensor is already a DLPack capsule."
            )
        return _of_capsule(ext_tensor)
    try:
        array = np.from_dlpack(ext_tensor, copy=copy)
    except RuntimeError as error:
        raise BufferError(f"from_dlpack: NumPy, which reads the capsule, says: {error}") from error
    return on_array(array)


def _of_capsule(given: Any) -> Tensor:
    if type(given).__name__ != "PyCapsule" or not any(name in repr(given) for name in CAPSULES):
        raise RuntimeError(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed "
            "only once, so you might have already constructed a tensor from it once."
        )
    versioned = CAPSULES[1] in repr(given)
    array = np.from_dlpack(_Producer(given))
    # an older capsule can't say whether its bytes may be written; as in PyTorch, they may
    return on_array(array if versioned or not array.size else np.asarray(Writable(array)))


# -- buffers --------------------------------------------------------------------------------------


@sampled(lambda tensor: [(bytearray(16), {"dtype": tensor([]).dtype})])
def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A vector on a buffer's bytes, from byte `offset` on: writes show on both sides.

    Shape: (count,), or what the buffer holds from `offset` on.
    Raises: ValueError for what is no buffer, an empty one, and lengths that are no multiple of an
    element.
    Memory: none is made: the tensor shares the buffer's bytes.
    """
    return finish(_on_buffer(buffer, dtype, count, offset), requires_grad)


def _on_buffer(buffer: Any, dtype: dtypes.dtype, count: int = -1, offset: int = 0) -> Tensor:
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(
            f"frombuffer(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}"
        )
    flat = _bytes_of(buffer)
    n, size = len(flat), dtype.itemsize
    if n == 0 or count == 0:
        raise ValueError(f"both buffer length ({n}) and count ({count}) must not be 0")
    if not 0 <= offset < n:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({n} "
            "bytes) minus 1"
        )
    if count < 0:
        if (n - offset) % size:
            raise ValueError(
                f"buffer length ({n - offset} bytes) after offset ({offset} bytes) must be a "
                f"multiple of element size ({size})"
            )
        count = (n - offset) // size
    if offset + count * size > n:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({n} bytes)"
        )
    if not flat.flags.writeable:
        warn_once(READ_ONLY)
    array: Array = np.ndarray((count,), dtype.np, flat, offset)
    return wrap(storages.external(array), Layout((count,), (1,), 0), dtype)


def _bytes_of(buffer: Any) -> Array:
    if not is_buffer(buffer):
        raise ValueError("object does not implement Python buffer protocol.")
    try:
        return np.frombuffer(buffer, np.uint8)
    except (ValueError, BufferError) as error:
        if not memoryview(buffer).nbytes:
            return np.empty(0, np.uint8)
        raise RuntimeError("could not retrieve buffer from object") from error


def is_buffer(obj: Any) -> bool:
    try:
        memoryview(obj)
    except TypeError:
        return False
    except (ValueError, BufferError):  # it is one that memoryview can't show
        return True
    return True


# -- asarray --------------------------------------------------------------------------------------


@sampled(lambda tensor: [([1.0, 2.0],), (tensor([1.0]), {"copy": True})])
def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a tensor, on the same bytes where it has any and its dtype fits.

    `copy=True` always copies, `copy=False` raises ValueError where it would have to. Tensors,
    arrays, DLPack producers and buffers share; a buffer is read as the default dtype.
    `requires_grad=None` keeps that of a tensor; given, it is set on `obj` itself where `obj` is a
    leaf that need not be copied.

    Shape: the object's.
    Raises: ValueError where `copy=False` would have to copy; RuntimeError for an object of no known
    dtype.
    Memory: none is made where bytes can be shared, else a new tensor.
    """
    devices.check(device)
    if isinstance(obj, np.generic) and copy is False:
        raise RuntimeError(
            "can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. "
        )
    shared = _sharing(obj, dtype, warns=not copy)
    if shared is None:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        given = np.asarray(obj) if isinstance(obj, np.generic) else obj
        return creation.tensor(given, dtype=dtype, requires_grad=bool(requires_grad))
    if requires_grad is None:
        requires_grad = shared._rg
        if requires_grad:
            warn(FOLLOWS, UserWarning)
    return _requiring(_as(shared, shared._dtype if dtype is None else dtype, copy), requires_grad)


def _sharing(obj: Any, dtype: Any, warns: bool) -> Tensor | None:
    """A tensor on the object's own bytes; None where it has none to share."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray):
        return creation.from_numpy(obj) if warns else on_array(obj)
    if isinstance(obj, np.generic):
        return None
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return from_dlpack(obj)
    if isinstance(obj, UntypedStorage):
        if not obj.nbytes():
            return None
        return _on_buffer(obj._bytes(), promotion.get_default_dtype() if dtype is None else dtype)
    if is_buffer(obj):
        return _on_buffer(obj, promotion.get_default_dtype() if dtype is None else dtype)
    return None


def _as(t: Tensor, dtype: dtypes.dtype, copy: bool | None) -> Tensor:
    if dtype is t._dtype:
        return clone(t) if copy else t
    if copy is False:
        have, want = promotion.scalar_type_name(t._dtype), promotion.scalar_type_name(dtype)
        raise ValueError(f"can't alias tensor with dtype '{have}' into dtype '{want}'.")
    return to(t, dtype)


def _requiring(t: Tensor, requires_grad: bool) -> Tensor:
    if t._rg == requires_grad:
        return t
    if not t.is_leaf:
        t = t.detach()
    return finish(t, True) if requires_grad else t.requires_grad_(False)


# -- NumPy's protocols ----------------------------------------------------------------------------


def array_of(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Array:
    """`numpy()` as NumPy asks for it: `np.asarray(x)` shares, `np.array(x)` copies."""
    array = self.numpy()
    if dtype is None or array.dtype == dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    return array.astype(dtype)


def array_wrap(
    self: Tensor, array: Any, context: Any = None, return_scalar: bool = False
) -> Tensor:
    """The result of a NumPy function on a tensor, as a tensor on the result's bytes (bools as
    uint8, as in PyTorch).
    """
    array = np.asarray(array)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    made = on_array(array)
    return (
        converted(made, type(self)) if not self._skimp_on_fast_path and self._skimp_asks() else made
    )


# -- the Array API standard ------------------------------------------------------------------------

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")  # each holds what those before it hold


def array_namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """The functions of the Array API standard, `skimp.array_api`."""
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(
            f"__array_namespace__: version {api_version!r} of the Array API standard is not here; "
            f"there are {', '.join(VERSIONS)}"
        )
    return sys.modules["skimp"].array_api  # above this room: imported when somebody asks


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """`to(device)`, under the Array API standard's name; streams mean nothing on a CPU.

    Shape: any; the result's is the input's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: ValueError for a stream.
    Memory: the input itself, or a new tensor on another device.
    """
    return to(self, device)


for _name, _f in {
    "__array_namespace__": array_namespace,
    "to_device": to_device,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__array__": array_of,
    "__array_wrap__": array_wrap,
}.items():
    setattr(Tensor, _name, _f)

for _f in (from_dlpack, frombuffer):
    export(_f.__name__, _f, method=False)
export("asarray", asarray, method=False, copies="from Python or NumPy")
