"""Another type, another device: `to`, and the methods that are named after types."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.row import ORDINARY, sampled
from skimp._engine.eval.convert import convert
from skimp._engine.memory import copies as told
from skimp._engine.memory.meta import NO_DATA
from skimp._engine.tensor import devices, dtypes, formats, meta
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.shape.copies import clone, copied, describe

TO_COPY = Rule("ToCopyBackward0", input=lambda g, input_dtype: g.to(input_dtype))


@hidden("_to_copy", rule=TO_COPY, batch=batching.dims.ELEMENTWISE)
def to_copy(input: Tensor, dtype: dtypes.dtype, memory_format: Any = None) -> Tensor:
    strides = formats.strides_for(input, memory_format)
    return copied(input, strides, dtype, "to", lambda: _why(input, dtype))


@sampled(
    lambda tensor: [(tensor([1, 2]), tensor([1]).int().dtype), (tensor([1]), tensor([1]).int())]
)
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`to(dtype)`, `to(device)`, `to(device, dtype)`, `to(other)`: the tensor itself where nothing
    changes.

    Takes `non_blocking`, `copy` and `memory_format` too.
    """
    dtype, where, copy_always, memory_format = to_arguments(*args, **kwargs)
    dtype = input._dtype if dtype is None else dtype
    if where is not None and devices.place(where) is not input.device:
        return _moved(input, dtype, devices.place(where), memory_format)
    if dtype is not input._dtype:
        return to_copy(input, dtype, memory_format)
    keeps = memory_format in (None, formats.preserve_format)
    if not copy_always and (keeps or formats.suggested(input) is memory_format):
        return input
    return clone(input, memory_format=memory_format)


def _brought(input: Tensor, *_: Any) -> NoReturn:
    raise NotImplementedError(NO_DATA)


@hidden(rule=TO_COPY, meta=_brought)
def _moved(input: Tensor, dtype: dtypes.dtype, where: Any, memory_format: Any) -> Tensor:
    """A tensor without bytes like one that has some."""
    return meta.empty(tuple(input.shape), dtype, formats.strides_for(input, memory_format))


def to_arguments(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    words = dict(kwargs)
    dtype, where = words.pop("dtype", None), words.pop("device", None)
    copy_always, memory_format = words.pop("copy", False), words.pop("memory_format", None)
    words.pop("non_blocking", None)
    other = words.pop("other", None)
    if words:
        raise TypeError(
            f"to() received an invalid combination of arguments: unknown keyword "
            f"'{next(iter(words))}'"
        )
    rest = [dtypes.asked(one) for one in args]
    dtype = dtypes.asked(dtype)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], dtypes.dtype):
        dtype = rest.pop(0)
    elif rest and (rest[0] is None or isinstance(rest[0], (str, devices.device, int))):
        where = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], dtypes.dtype)):
            dtype = rest.pop(0)
    elif rest:
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({type(rest[0]).__name__})"
        )
    if other is not None:
        dtype, where = other._dtype, other.device
    if len(rest) > 2 or not all([isinstance(v, bool) for v in rest]):
        got = ", ".join([type(v).__name__ for v in args])
        raise TypeError(f"to() received an invalid combination of arguments - got ({got})")
    if len(rest) == 2:  # non_blocking, copy
        copy_always = rest[1]
    if dtype is not None and not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    return dtype, where, copy_always, memory_format


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """What the arguments of `Module.to` mean: device, dtype, non_blocking and memory format.

    Modules of libraries that have a `to` of their own ask for it under PyTorch's private name.
    """
    dtype, where, _, memory_format = to_arguments(*args, **kwargs)
    flags = [one for one in args if isinstance(one, bool)]
    if "copy" in kwargs or len(flags) > 1:
        raise RuntimeError(".to() does not accept copy argument")
    non_blocking = bool(kwargs.get("non_blocking", flags and flags[0]))
    return None if where is None else devices.device(where), dtype, non_blocking, memory_format


def _small_cast(input: Tensor, dtype: dtypes.dtype) -> Tensor | None:
    x, have = input._np, input._dtype
    if x is None or not (x.flags.c_contiguous or not any(x.strides)):
        return None
    told.small(x.size * dtype.itemsize, "to", _why, input, dtype)
    if (have, dtype) in _AS_NUMPY:
        array = x.astype(dtype.np, "C")
    else:
        array = np.empty(x.shape, dtype.np)
        quietly(convert, x, array)
    made = fresh(array, dtype)
    if input._rg and modes.state.grad:
        given = {"input": input, "dtype": dtype, "memory_format": None}
        record(TO_COPY, given, made)
    return made


def _why(input: Tensor, dtype: dtypes.dtype) -> str:
    return f"to({dtype}) of {describe(input)} of {input._dtype}"


# casts that NumPy's `astype` makes as PyTorch does, without warnings
_AS_NUMPY = {
    (have, want)
    for have in (*dtypes.INTEGRAL, dtypes.bool)
    for want in (*dtypes.FLOATING, *dtypes.INTEGRAL)
} | {(dtypes.float32, dtypes.float64)}


def _small_to(input: Tensor, *args: Any) -> Tensor | None:
    """`to(dtype)`, `to(other)`, and `to(device)` where everything is."""
    if len(args) != 1:
        return None
    kind = args[0]
    if type(kind) in ORDINARY:
        kind = kind._dtype
    if type(kind) is dtypes.dtype:
        return input if kind is input._dtype else _small_cast(input, kind)
    return input if kind is devices.CPU or (type(kind) is str and kind == "cpu") else None


export("to", to, namespaces=(), fast=_small_to)


def _cast_method(name: str, dtype: dtypes.dtype) -> None:
    def method(input: Tensor, memory_format: Any = None) -> Tensor:
        if dtype is input._dtype:
            return input if memory_format is None else to(input, memory_format=memory_format)
        return to_copy(input, dtype, memory_format)

    def fast(input: Tensor, memory_format: Any = None) -> Tensor | None:
        if memory_format is not None:
            return None
        return input if dtype is input._dtype else _small_cast(input, dtype)

    made = sampled(lambda tensor: [(tensor([1, 2]),)])(named(method, name, f"`to({dtype})`."))
    export(name, made, namespaces=(), fast=fast)


for _name, _dtype in {
    **dtypes.ALIASES,
    "bool": dtypes.bool,
    "byte": dtypes.uint8,
    "char": dtypes.int8,
    "bfloat16": dtypes.bfloat16,
}.items():
    _cast_method(_name, _dtype)


SAYS = """\
Shape: any; the result's is the input's.
Raises: RuntimeError or TypeError for what names no device, dtype or fitting memory format.
Memory: the input itself where it has the dtype and no copy is asked for, else a new tensor."""
