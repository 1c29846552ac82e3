"""Tensors from data, from numbers, and from NumPy's arrays without a copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, Unpack

import numpy as np

from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.operands import check_number, constant
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.row import sampled
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts, storage as storages
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.call_site import warn, warn_once
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import devices, dtypes, meta, promotion
from skimp._engine.tensor.tensor import Array, Tensor, empty, fresh, wrap
from skimp._ops import batching
from skimp._ops.create import nested
from skimp._ops.create.arrays import check_strides, known, layout_of, on_array
from skimp._ops.create.options import (
    LikeOptions,
    Options,
    beside,
    dense_tensor,
    empty_as,
    finish,
    making,
    size_of,
    sizes_of,
    small_shape,
)
from skimp._ops.shape.conversions import to
from skimp._ops.shape.copies import clone, fill
from skimp._ops.sparse import rules as sparse

F = TypeVar("F", bound=Callable[..., Any])


def create(f: F, **known: Any) -> F:
    """Export a function of the package that makes tensors (it has no method)."""
    export(f.__name__, f, method=False, quick=True, **known)
    return f


_copy = partial(create, copies="from Python or NumPy")
_LISTED = 32  # numbers in a list that are few


def created(fast: Callable[..., Any], **known: Any) -> Callable[[F], F]:
    """`create`, with what makes small tensors."""

    def declare(f: F) -> F:
        export(f.__name__, f, method=False, fast=fast, **known)
        return f

    return declare


# -- from data ------------------------------------------------------------------------------------


def infer(data: Any) -> Array:
    """An ndarray of nested sequences, with PyTorch's choice of dtype and its errors."""
    array, dtype = _read(data, None)
    return array if array.dtype == dtype.np else array.astype(dtype.np)


def _read(data: Any, dtype: dtypes.dtype | None) -> tuple[Array, dtypes.dtype]:
    """An array with the values of `data`, and the dtype that they are to have."""
    if isinstance(data, (list, tuple, range)):
        return nested.array_of(data, dtype)
    if isinstance(data, np.ndarray):
        check_strides(data)
        own = known(data.dtype)
        return np.asarray(data), own if dtype is None else dtype
    if isinstance(data, np.generic):
        if dtype is not None:
            return nested.array_of(data, dtype)
        array = np.asarray(data)
    elif isinstance(data, (bool, int, float, complex)):
        return nested.array_of(data, dtype)
    elif isinstance(data, str | bytes):
        raise nested.no_dtype(data)
    elif hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        array = np.asarray(data)
    elif nested.is_sequence(data):
        return nested.array_of(list(data), dtype)
    else:
        raise nested.no_dtype(data)
    return array, known(array.dtype) if dtype is None else dtype


def _few_numbers(data: Any, dtype: Any = None) -> Tensor | None:
    """A tensor of a number, or of few in a list, or in lists in one."""
    if type(data) is float or type(data) is int:
        return _copy_of(data, dtype)
    if type(data) is not list or not 0 < len(data) <= _LISTED:
        return None
    if type(data[0]) is list and len(data[0]) > _LISTED:
        return None
    found = nested.of_one_kind(data, dtype)
    return found and fresh(*found)


@created(_few_numbers, copies="from Python or NumPy")
@sampled(lambda tensor: [([[1.0, 2.0], [3.0, 4.0]],), ([1, 2],)])
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:  # fmt: skip
    """A new tensor with a copy of `data`: numbers, nested sequences, arrays.

    Shape: that of the nested sequences.
    Raises: ValueError for rows of unlike lengths, RuntimeError for what has no dtype.
    """
    if devices.place(device) is devices.META:
        return finish(meta.like(_read_anew(data, dtype)), requires_grad)
    if isinstance(data, Tensor):
        warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), "
            "rather than torch.tensor(sourceTensor).",
            UserWarning,
        )
        return finish(
            clone(to(data.detach(), dtype if dtype is not None else data._dtype)), requires_grad
        )
    return finish(_copy_of(data, dtype), requires_grad)


def _read_anew(data: Any, dtype: Any) -> Tensor:
    """What `data` says of a tensor's shape and dtype, in a tensor."""
    if isinstance(data, Tensor):
        return data if dtype is None else meta.like(data, dtypes.asked(dtype))
    return _copy_of(data, dtype)


def _copy_of(data: Any, dtype: Any) -> Tensor:
    dtype = dtypes.asked(dtype)
    if dtype is None and type(data) is float:
        default = promotion.get_default_dtype()
        return fresh(constant(data, default), default)
    if dtype is None and type(data) is int and -(2**63) <= data < 2**63:
        return fresh(constant(data, dtypes.int64), dtypes.int64)
    if (type(data) is int and dtype is not None) or (type(data) is float and _is_inexact(dtype)):
        return fresh(_checked_number(data, dtype), dtype)
    array, want = _read(data, dtype)
    if type(data) is list and array.dtype == want.np and array.nbytes < POOLED:
        return fresh(array, want)  # nobody else has it
    strides = None
    if isinstance(data, np.ndarray) and data.ndim > 1 and not data.flags.c_contiguous:
        strides = layouts.empty_like_strides(layout_of(data))
    elif array.nbytes < POOLED:
        made = np.empty(array.shape, want.np)
        copy(made, array)
        return fresh(made, want)
    new = empty(array.shape, want, strides)
    copy(new._skimp_writable(), array)
    return new


def _is_inexact(dtype: dtypes.dtype | None) -> bool:
    return dtype is not None and dtype.category > dtypes.INT


def _checked_number(value: Any, dtype: dtypes.dtype) -> Any:
    if type(value) is int:
        if dtype.category == dtypes.INT:
            value = nested.whole(value, dtype)
        else:  # an int may be beyond all that NumPy has
            value = bool(value) if dtype is dtypes.bool else float(value)
    return constant(value, dtype)


@create
@sampled(lambda tensor: [(np.arange(3.0),)])
def from_numpy(ndarray: Any) -> Tensor:
    """A tensor on the array's own bytes: writes show on both sides.

    >>> import numpy
    >>> array = numpy.zeros(2)
    >>> torch.from_numpy(array)[0] = 1
    >>> array.tolist()
    [1.0, 0.0]

    Shape: the array's.
    Raises: TypeError for what is no array of a known dtype, ValueError for strides below zero.
    Memory: none is made: the tensor shares the array's bytes.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    t = on_array(ndarray)
    if not ndarray.flags.writeable:
        _warn_readonly()
    return t


def _warn_readonly() -> None:
    warn_once(
        "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. "
        "This means writing to this tensor will result in undefined behavior. You may want to copy "
        "the array to protect its data or make it writable before converting it to a tensor. "
        "(skimp: a write raises ValueError where the bytes are no array's own)"
    )


@_copy
@sampled(lambda tensor: [([1.0, 2.0],), (tensor([1.0]),)])
def as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, on the same bytes where they can be shared (a tensor, an ndarray of the
    dtype).

    Shape: the data's: nested sequences have a dim for each level.
    Memory: the input itself, or the array's own bytes, where nothing is to change; else a new
    tensor.
    """
    if isinstance(data, Tensor):
        return data if dtype is device is None else to(data, device=device, dtype=dtype)
    if devices.place(device) is devices.META:
        return meta.like(_read_anew(data, dtype))
    if (
        isinstance(data, np.ndarray)
        and data.dtype in dtypes.FROM_NUMPY
        and (dtype is None or dtype.np == data.dtype)
    ):
        return from_numpy(data)
    return _copy_of(data, dtype)


@create
@making()
def scalar_tensor(s: Any, *, dtype: Any = None, **options: Unpack[Options]) -> Tensor:
    """A 0-d tensor of the default dtype.

    Shape: no dim.
    """
    return full((), s, dtype=dtype or promotion.get_default_dtype(), **options)


# -- from numbers ---------------------------------------------------------------------------------


def _filled_with(name: str, value: int, zeroed: bool) -> None:
    @making(LikeOptions)
    def f(*size: Any, out: Tensor | None = None, dtype: Any = None, **options: Any) -> Tensor:
        shape = sizes_of(size_of(name, size, options, LikeOptions))
        if out is not None:
            outs.check_out_dtype(dtype, out)
            outs.resize_out(name, out, shape)
            if value >= 0:
                fill(out, value)
            return out
        t = dense_tensor(shape, dtype, zeroed=zeroed, **options)
        if value > 0:
            fill(t, value)
        return finish(t, **options)

    @making(LikeOptions)
    def like(input: Tensor, *, dtype: Any = None, **options: Unpack[LikeOptions]) -> Tensor:
        t = empty_as(input, dtype, zeroed=zeroed, **options)
        if value > 0:
            fill(t, value)
        return finish(t, **options)

    @making()
    def new(input: Tensor, *size: Any, dtype: Any = None, **options: Any) -> Tensor:
        return f(*size, dtype=dtype or input._dtype, **beside(input, options))

    doc = {0: "zeros", 1: "ones", -1: "uninitialised elements"}[value]
    empty = {0: np.zeros, 1: np.ones, -1: np.empty}[value]

    def fast(size: tuple[Any, ...], dtype: Any = None) -> Tensor | None:
        shape = small_shape(size)
        if shape is None:
            return None
        if dtype is None:
            dtype = default_dtype()
        elif type(dtype) is not dtypes.dtype:
            return None
        return fresh(empty(shape, dtype.np), dtype)

    def fast_like(input: Any, dtype: Any = None) -> Tensor | None:
        x = input._np
        if x is None or not x.flags.c_contiguous or not x.size:
            return None
        if dtype is None:
            dtype = input._dtype
        elif type(dtype) is not dtypes.dtype:
            return None
        return fresh(empty(x.shape, dtype.np), dtype)

    filled = named(f, name, f"A tensor of {doc}.\n\nShape: `size`.")
    export(name, filled, method=False, fast=fast, makes=value >= 0)
    export(
        f"{name}_like",
        named(
            like,
            f"{name}_like",
            f"A tensor of {doc}, laid out as the input.\n\nShape: the input's.",
        ),
        method=False,
        composite=False,
        fast=fast_like,
        batch=batching.dims.ELEMENTWISE,
        sparse=sparse.nothing_like if value <= 0 else None,
        unset=value < 0,
        makes=value >= 0,
    )

    def fast_new(input: Any, *size: Any, dtype: Any = None) -> Tensor | None:
        shape = small_shape(size) if input._np is not None else None
        if shape is None:
            return None
        if dtype is None:
            dtype = input._dtype
        elif type(dtype) is not dtypes.dtype:
            return None
        return fresh(empty(shape, dtype.np), dtype)

    export(
        f"new_{name}",
        named(new, f"new_{name}", f"A tensor of {doc} of this tensor's dtype.\n\nShape: `size`."),
        namespaces=(),
        fast=fast_new,
        makes=value >= 0,
    )


_filled_with("zeros", 0, True)
_filled_with("ones", 1, False)
_filled_with("empty", -1, False)


@create
@making()
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, **options: Unpack[Options]
) -> Tensor:
    """An uninitialised tensor with these strides; its storage is as long as they need.

    Shape: `size`.
    """
    shape, strides = sizes_of((size,)), sizes_of((stride,))
    if len(shape) != len(strides):
        raise RuntimeError(
            f"mismatch in length of strides and shape: got {len(shape)} sizes and {len(strides)} "
            f"strides"
        )
    where = devices.place(options.get("device"))
    dtype = dtype or promotion.get_default_dtype()
    found = Layout(shape, strides, 0)
    if where is devices.META:
        return finish(meta.empty(shape, dtype, strides), **options)
    s = storages.empty(layouts.nbytes_needed(found, dtype.itemsize))
    return finish(wrap(s, found, dtype), **options)


def _small_full(size: Any, fill_value: Any, dtype: Any = None) -> Tensor | None:
    shape = small_shape((size,)) if type(size) is not int else None
    want = dtype if type(dtype) is dtypes.dtype else _OF_NUMBER.get(type(fill_value))
    if shape is None or want is None or (dtype is not None and dtype is not want):
        return None
    return _small_of(shape, fill_value, want)


def _small_of(shape: tuple[int, ...], value: Any, dtype: dtypes.dtype) -> Tensor | None:
    """A small tensor of one number that any of its type can hold."""
    if dtype is dtypes.float32 and default_dtype() is dtypes.float32:
        if type(value) not in (float, int) or not -_SAFE < value < _SAFE:
            return None
    elif dtype is not dtypes.int64 or type(value) is not int or not -_SAFE < value < _SAFE:
        return None
    made = np.empty(shape, dtype.np)
    made.fill(value)
    return fresh(made, dtype)


_OF_NUMBER: dict[type, dtypes.dtype] = {float: dtypes.float32, int: dtypes.int64}
_SAFE = 1 << 62  # numbers below which every type used here holds
default_dtype = promotion.get_default_dtype


@created(_small_full, makes=True)
@making()
def full(
    size: Any,
    fill_value: Any,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Tensor:
    """A tensor of one value.

    Shape: `size`.
    """
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    if dtype is None:
        dtype = out._dtype if out is not None else promotion.scalar_dtype(fill_value)
    check_number(fill_value, dtypes.asked(dtype))
    shape = sizes_of((size,) if not isinstance(size, int) else ((size,),))
    if out is not None:
        outs.check_out_dtype(dtype, out)
        outs.resize_out("full", out, shape)
        fill(out, fill_value)
        return out
    t = dense_tensor(shape, dtype, **options)
    fill(t, fill_value)
    return finish(t, **options)


def _small_full_like(input: Tensor, fill_value: Any) -> Tensor | None:
    x = input._np
    if x is None or not x.flags.c_contiguous or not x.size:
        return None
    return _small_of(x.shape, fill_value, input._dtype)


@created(_small_full_like, composite=False, batch=batching.dims.ELEMENTWISE, makes=True)
@making(LikeOptions)
def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, **options: Unpack[LikeOptions]
) -> Tensor:
    """A tensor of one value, shaped and laid out as the input.

    Shape: the input's.
    """
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    t = empty_as(input, dtype, **options)
    check_number(value, t._dtype)
    fill(t, value)
    return finish(t, **options)


def _small_new_full(
    input: Tensor, size: Any, fill_value: Any, *, dtype: Any = None
) -> Tensor | None:
    shape = small_shape((size,)) if input._np is not None and type(size) is not int else None
    if shape is None or not (dtype is None or type(dtype) is dtypes.dtype):
        return None
    return _small_of(shape, fill_value, dtype or input._dtype)


@making()
def new_full(
    input: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, **options: Unpack[Options]
) -> Tensor:
    """A tensor of one value, of this tensor's dtype.

    Shape: `size`.
    """
    return full(size, fill_value, dtype=dtype or input._dtype, **beside(input, options))


@making()
@sampled(lambda tensor: [(tensor([1.0]), [2, 3])])
def new_tensor(
    input: Tensor, data: Any, *, dtype: Any = None, **options: Unpack[Options]
) -> Tensor:
    """A copy of `data`, of this tensor's dtype.

    Shape: the data's: nested sequences have a dim for each level.
    """
    device, requires_grad = options.get("device"), options.get("requires_grad", False)
    device = input.device if device is None else device
    return tensor(data, dtype=dtype or input._dtype, device=device, requires_grad=requires_grad)


export("new_full", new_full, namespaces=(), fast=_small_new_full, makes=True)
export("new_tensor", new_tensor, namespaces=())


SAYS = """\
Dtypes: any.
Raises: RuntimeError for a negative size, RuntimeError or ValueError for a number that the dtype
can't hold."""
