"""Which element type an operation on several types has: PyTorch's promotion rules, as tables."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.tensor.dtypes import (
    ALL,
    COMPLEX,
    FLOAT,
    FLOAT8,
    INT,
    UNSIGNED,
    bfloat16,
    bool as bool_,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)

_SCALAR_TYPE_NAMES: Final = {
    bool_: "Bool", uint8: "Byte", int8: "Char", int16: "Short", int32: "Int", int64: "Long",
    float16: "Half", bfloat16: "BFloat16", float32: "Float", float64: "Double",
    complex64: "ComplexFloat", complex128: "ComplexDouble",
    **{d: f"UInt{8 * d.itemsize}" for d in UNSIGNED},
    **{d: d.name.capitalize() for d in FLOAT8},
}  # fmt: skip


def scalar_type_name(of: dtype) -> str:
    """The name that PyTorch's error messages have for an element type: "Float" for float32."""
    return _SCALAR_TYPE_NAMES[of]


def refuse(kernel: str, of: dtype, refused: Container[dtype]) -> None:
    """Refuse an element type for which an op has no kernel, in PyTorch's words."""
    if of in refused:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type_name(of)}'")


# --- the default types ------------------------------------------------------------------------

_default: dtype = float32


def get_default_dtype() -> dtype:
    """The type of Python floats, and of float results of integers."""
    return _default


def set_default_dtype(new: Any, /) -> None:
    """Set the type of Python floats: one of the floating-point types.

    Raises: TypeError for what is no floating-point type.
    """
    global _default
    if not isinstance(new, dtype):
        raise TypeError(
            "invalid dtype object: only floating-point types are supported as the default type"
        )
    if not new.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    _default = new


def default_complex_dtype() -> dtype:
    """The type of Python complex numbers: parts of the default type, or of float32 if smaller."""
    return complex128 if _default is float64 else complex64


def scalar_dtype(number: complex) -> dtype:
    """The type of a tensor made of a number of Python's, or NumPy's, whose bools are floats."""
    if isinstance(number, bool):
        return bool_
    if isinstance(number, (int, np.integer)):
        return int64
    is_complex = isinstance(number, (complex, np.complexfloating))
    return default_complex_dtype() if is_complex else _default


def to_float(of: dtype) -> dtype:
    """The type in which sin, mean or a true division of this type has its results."""
    return of if of.category >= FLOAT else _default


# --- two types --------------------------------------------------------------------------------


def _promoted(a: dtype, b: dtype) -> dtype:
    """The smallest type that holds both, where range counts and precision does not."""
    low, high = sorted((a, b), key=lambda each: (each.category, each.itemsize))
    if high is complex64 and low is float64:
        return complex128
    if high.category == low.category and high.itemsize == low.itemsize and high is not low:
        return int16 if high.category == INT else float32  # uint8, int8; float16, bfloat16
    return high


_PROMOTED: Final = {
    **{(a, b): _promoted(a, b) for a in ALL for b in ALL},
    **{(a, a): a for a in (*UNSIGNED, *FLOAT8)},
    **{pair: b for a in UNSIGNED for b in ALL if b.category == FLOAT for pair in ((a, b), (b, a))},
}


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """`torch.promote_types`: the type of a result of tensors of these types.

    Raises: TypeError for what is no dtype.
    """
    found = _PROMOTED.get((type1, type2))
    if found is None:
        _refuse_types("promote_types", type1=type1, type2=type2)
        kinds = "Float8 Types" if {type1, type2} & set(FLOAT8) else "uint16, uint32, uint64 types"
        names = [scalar_type_name(of) for of in (type1, type2)]
        raise RuntimeError(
            f"Promotion for {kinds} is not supported, attempted to promote {names[0]} and "
            f"{names[1]}"
        )
    return found


def can_cast(from_: dtype, to: dtype) -> bool:
    """`torch.can_cast`: whether a result of one type may be stored as the other.

    It may lose range or sign, but not its kind: fraction, imaginary part, being more than a bool.

    Raises: TypeError for what is no dtype.
    """
    try:
        return from_.category <= to.category
    except AttributeError:
        _refuse_types("can_cast", from_=from_, to=to)
        raise


def _refuse_types(name: str, **given: Any) -> None:
    """PyTorch's TypeError where an argument is no dtype."""
    for place, (word, value) in enumerate(given.items(), 1):
        if not isinstance(value, dtype):
            raise TypeError(
                f"{name}(): argument '{word}' (position {place}) must be torch.dtype, not "
                f"{type(value).__name__}"
            )


# --- the operands of an op --------------------------------------------------------------------

Operand = tuple[dtype, bool, bool]  # element type, is a 0-d tensor, is a Python number


def result_dtype(operands: tuple[Operand, ...]) -> dtype:
    """The type in which an op on these operands is computed (torch.result_type).

    Tensors with dimensions decide; 0-d tensors, and after them Python numbers, only where they
    are of a higher category: bool, integer, float, complex.
    """
    return _result_dtype(operands, _default)


@lru_cache(maxsize=4096)
def _result_dtype(operands: tuple[Operand, ...], default: dtype) -> dtype:
    ranked: list[dtype | None] = [None, None, None]
    for of, is_zero_dim, is_number in operands:
        rank = 2 if is_number else int(is_zero_dim)
        own = _number_dtype(of, default) if is_number else of
        before = ranked[rank]
        ranked[rank] = own if before is None else promote_types(before, own)
    with_dims, zero_dim, number = ranked
    result = _combine(with_dims, _combine(zero_dim, number))
    if result is None:
        raise ValueError("an op without operands has no result type")
    return result


def _number_dtype(of: dtype, default: dtype) -> dtype:
    """A Python float or complex number counts as of the default type."""
    if of.category == FLOAT:
        return default
    if of.category == COMPLEX:
        return complex128 if default is float64 else complex64
    return of


def _combine(higher: dtype | None, lower: dtype | None) -> dtype | None:
    """What operands of lower rank change about the type of those of higher rank."""
    if higher is None or lower is None:
        return higher or lower
    if lower.category <= higher.category:
        return higher
    if higher.category == FLOAT:
        return higher.to_complex()
    return promote_types(higher, lower)
