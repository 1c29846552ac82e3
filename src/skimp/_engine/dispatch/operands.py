"""Arguments as the arrays that kernels take, and arrays converted as PyTorch converts."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.eval.convert import convert
from skimp._engine.eval.copy import copy
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes, promotion, regions
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._kernels.halves import retyped
from skimp._kernels.threads import quietly
from skimp.config import config

_state = modes.state
_active = regions.active

# Narrow floats are computed in float32 and rounded once per op, as PyTorch's "opmath" does.
OPMATH = dict.fromkeys((*dtypes.HALVES, *dtypes.FLOAT8), dtypes.float32)

MIDDLE: Final = 1 << 18  # elements up to which whole arrays are the shortest way


def require_tensor(function: str, argument: str, value: Any, position: int = 1) -> None:
    """A tensor, where PyTorch's argument parser asks for one."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{function}(): argument '{argument}' (position {position}) must be Tensor, not "
            f"{type(value).__name__}"
        )


def scalar_tensor(value: Any) -> Tensor:
    dtype = promotion.scalar_dtype(value)
    return fresh(np.asarray(value, dtype.np), dtype)


def empty_dense(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array with these strides (in elements), which fill their memory without
    gaps.
    """
    packed = _packed(shape, strides)
    if packed is not None:  # in a third of the time
        sizes, axes = packed
        return np.empty(sizes, dtype).transpose(axes)
    made = np.empty(layouts.numel(shape), dtype)
    if 0 in shape:
        return made.reshape(shape)
    return np.ndarray(shape, dtype, made, 0, [s * dtype.itemsize for s in strides])


def middle_array(t: Any) -> Array | None:
    """The array of a row-major tensor of floats that is larger than small ones by so little that
    one call on all of it is the shortest way: what waits is computed for it. None of others.
    """
    if t._np is not None or type(t) is not Tensor or t._dtype not in dtypes.FLOATING:
        return None
    shape, strides, _ = t._skimp_layout or t._skimp_layout_of()
    if math.prod(shape) > min(MIDDLE, 2 * config.small_below):
        return None
    if strides != layouts.contiguous_strides(shape) or t._skimp_neg:
        return None
    return t._skimp_array()


@lru_cache(maxsize=1024)
def _packed(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes from the outermost dim on, and where each dim is among them; None where a size is 0
    or 1, whose stride may be any.
    """
    if 0 in shape or 1 in shape:
        return None
    outermost = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    axes = [outermost.index(dim) for dim in range(len(shape))]
    return tuple([shape[dim] for dim in outermost]), tuple(axes)


def operand(a: Any, compute: dtypes.dtype, math: dtypes.dtype) -> Array:
    """An argument as an array of the type that the kernel computes in (a number becomes 0-d)."""
    if isinstance(a, Tensor):
        array = a._skimp_array()
        if a._dtype is not math:
            if a._dtype is not compute:
                array = cast(array, compute)
            if math is not compute:
                array = cast(array, math)
        return array
    return constant(a, math)


def unrecorded(first: Tensor, *others: Tensor) -> list[Array] | None:
    """The arrays of small tensors of one floating type, row-major or one element expanded, while no
    op on them would be recorded or met by a transform: a derivative that is a few steps then takes
    them on arrays, and what it makes is row-major.
    """
    dtype = first._dtype
    if _state.grad or _active or dtype not in dtypes.FLOATING:
        return None
    arrays = []
    for t in (first, *others):
        a = t._np
        if a is None or t._dtype is not dtype:
            return None
        if not a.flags.c_contiguous and any(a.strides):
            return None
        arrays.append(a)
    return arrays


def number_of(value: Any) -> Any:
    """NumPy's numbers, fractions and the like as Python's; what is neither a whole number nor one
    of Python's own kinds becomes a float (bools and complex64 too), as in PyTorch.
    """
    if isinstance(value, int):
        refuse_huge(value)
        return value
    if isinstance(value, (float, complex)):
        return value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, np.integer) else float(value)


def refuse_huge(value: int) -> None:
    """Refuse an integer that neither int64 nor uint64 holds, as the C API that PyTorch asks."""
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(
            "int too big to convert" if value > 0 else "can't convert negative int to unsigned"
        )


def constant(value: Any, dtype: dtypes.dtype) -> Array:
    """A Python number as a 0-d array; integers wrap as PyTorch's do."""
    kind = type(value)
    if kind is float and dtype.category == dtypes.FLOAT:
        return np.array(value, dtype.np)
    if kind is int and (
        (dtype is dtypes.int64 and -(1 << 63) <= value < 1 << 63)
        or (dtype.category == dtypes.FLOAT and -_EXACT <= value <= _EXACT)
    ):
        return np.array(value, dtype.np)
    if isinstance(value, int):
        refuse_huge(value)
    if dtype.category == dtypes.INT and isinstance(value, int) and not isinstance(value, bool):
        bits = 8 * dtype.itemsize
        value &= (1 << bits) - 1
        return np.asarray(value, np.dtype(f"u{dtype.itemsize}")).astype(dtype.np)
    if dtype.category != dtypes.COMPLEX and isinstance(value, complex):
        value = value != 0 if dtype is dtypes.bool else value.real
    if dtype.category == dtypes.INT and isinstance(value, float):
        return cast(np.asarray(value), dtype)
    return np.asarray(value).astype(dtype.np)


number = bare.remembering(constant)


_EXACT = 1 << 53  # integers up to here are doubles, from which they are rounded once

_C_CASTS = {
    dtypes.uint8: "uint8_t", dtypes.int8: "int8_t", dtypes.int16: "int16_t", dtypes.int32: "int",
    dtypes.int64: "int64_t", dtypes.uint16: "uint16_t", dtypes.uint32: "uint32_t",
    dtypes.uint64: "uint64_t", dtypes.float16: "c10::Half", dtypes.bfloat16: "c10::BFloat16",
    dtypes.complex64: "c10::complex<float>",
}  # fmt: skip


def no_room(dtype: dtypes.dtype) -> RuntimeError:
    """PyTorch's error about a number that the type can't hold."""
    own = "double" if dtype is dtypes.float64 else dtype.name.replace("float32", "float")
    own = own.replace("float8", "c10::Float8")
    return RuntimeError(
        f"value cannot be converted to type {_C_CASTS.get(dtype, own)} without overflow"
    )


def refuse_complex(dtype: dtypes.dtype, *values: Any) -> None:
    """Refuse complex numbers where the type is real."""
    for v in values:
        if isinstance(v, complex) and v.imag and not dtype.is_complex:
            raise no_room(dtype)


def all_hold(value: Any, compute: dtypes.dtype) -> bool:
    """Whether a number is one of those, as most factors are, that all types hold which are computed
    in a type of this kind: `check_number` has nothing to refuse.
    """
    kind = type(value)
    fits = kind is int or (kind is float and compute.category >= dtypes.FLOAT)
    return fits and -127 <= value <= 127


def check_number(value: Any, dtype: dtypes.dtype) -> None:
    """Refuse a number that the type can't hold: too large, nan for an integer, or with an imaginary
    part. The negative of an int that an unsigned type holds wraps, as in PyTorch.
    """
    if isinstance(value, int):
        refuse_huge(value)
    elif isinstance(value, (np.integer, np.floating)):
        value = value.item()
    if isinstance(value, complex) and not isinstance(value, np.generic):
        if dtype.is_complex:
            check_number(value.imag, dtype)
        elif value.imag and dtype is not dtypes.bool:
            raise no_room(dtype)
        value = value.real
    if dtype.category == dtypes.INT and isinstance(value, (int, float)):
        least, most = _ends(dtype)
        wraps = not dtype.is_signed and isinstance(value, int)
        fits = (-most if wraps else least) <= value <= most
    elif dtype.category >= dtypes.FLOAT and isinstance(value, (int, float)):
        fits = not math.isfinite(value) or abs(value) <= _largest(dtype)
    else:
        fits = True
    if not fits:
        raise no_room(dtype)


@cache
def _ends(dtype: dtypes.dtype) -> tuple[int, int]:
    """The least and the most that a type of integers holds."""
    info = np.iinfo(dtype.np)
    return int(info.min), int(info.max)


@cache
def _largest(dtype: dtypes.dtype) -> float:
    """What a floating or complex type holds; double what any number of Python's is."""
    real = dtype.to_real()
    return math.inf if real.itemsize > 4 else float(finfo(real).max)


def no_zero(compute: dtypes.dtype, args: tuple[Any, ...]) -> None:
    """Refuse a division of integers by zero."""
    if compute.category != dtypes.INT:
        return
    by = args[1]
    if type(by) is int and compute is dtypes.int64:
        if by:
            return
    elif np.logical_and.reduce(operand(by, compute, compute), None):
        return
    shapes = [tuple(a.shape) for a in args if isinstance(a, Tensor)]
    if layouts.numel(layouts.broadcast_shapes(*shapes)):
        raise RuntimeError("ZeroDivisionError")


def cast(array: Array, dtype: dtypes.dtype) -> Array:
    if array.dtype == dtype.np:
        return array
    if 0 in array.strides:  # repeated elements: NumPy's order for these is another
        layout = Layout(array.shape, tuple([s // array.itemsize for s in array.strides]), 0)
        made = empty_dense(array.shape, layouts.empty_like_strides(layout), dtype.np)
    else:
        made = bare.empty_like(array, dtype=dtype.np)
    copy(made, array)
    return made


def as_type(x: Array, own: dtypes.dtype, dtype: dtypes.dtype) -> Array:
    """`cast` of a small array of a type `own`."""
    if not x.flags.c_contiguous:
        return cast(x, dtype)
    if (own, dtype) in _WIDER:
        return retyped(x, dtype.np)
    made = np.empty(x.shape, dtype.np)
    quietly(convert, x, made)
    return made


def _wider() -> frozenset[tuple[dtypes.dtype, dtypes.dtype]]:
    """The pairs of types of which NumPy converts the first to the second as PyTorch does, and has
    nothing to warn about.
    """
    whole = [dtypes.bool, *dtypes.INTEGRAL]
    pairs = [(own, to) for own in whole for to in dtypes.INTEGRAL]
    pairs += [(own, to) for own in (*whole, *dtypes.HALVES) for to in dtypes.FLOATING_AND_COMPLEX]
    pairs += [(dtypes.float32, to) for to in (dtypes.float64, dtypes.complex64, dtypes.complex128)]
    return frozenset(pairs)


_WIDER = _wider()
