"""Element types by the standard's rules: casts, promotion, kinds, limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import skimp as torch
from skimp import Tensor
from skimp._engine.tensor import dtypes

KINDS: Final[dict[str, tuple[int, ...]]] = {  # the categories of a kind; signs are looked at apart
    "bool": (dtypes.BOOL,),
    "signed integer": (dtypes.INT,),
    "unsigned integer": (dtypes.INT,),
    "integral": (dtypes.INT,),
    "real floating": (dtypes.FLOAT,),
    "complex floating": (dtypes.COMPLEX,),
    "numeric": (dtypes.INT, dtypes.FLOAT, dtypes.COMPLEX),
}


@dataclass(frozen=True)
class FloatLimits:
    """What `finfo` answers; `dtype` is a dtype, where PyTorch's has a name."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtypes.dtype


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` answers; `dtype` is a dtype, where PyTorch's has a name."""

    bits: int
    max: int
    min: int
    dtype: dtypes.dtype


def astype(x: Tensor, dtype: dtypes.dtype, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The values in another element type: a copy, unless `copy=False` and nothing changes."""
    return x.to(device=x.device if device is None else device, dtype=dtype, copy=copy)


def can_cast(from_: Tensor | dtypes.dtype, to: dtypes.dtype, /) -> bool:
    """Whether promotion leads from one type to the other: stricter than `torch.can_cast`."""
    return torch.promote_types(_dtype(from_), to) is to


def finfo(type: Tensor | dtypes.dtype, /) -> FloatLimits:
    """Range and precision of a floating-point type, or of a complex type's parts."""
    of = _dtype(type)
    info = torch.finfo(of)
    return FloatLimits(info.bits, info.eps, info.max, info.min, info.smallest_normal, of.to_real())


def iinfo(type: Tensor | dtypes.dtype, /) -> IntegerLimits:
    """Range of an integer type."""
    of = _dtype(type)
    info = torch.iinfo(of)
    return IntegerLimits(info.bits, info.max, info.min, of)


def isdtype(dtype: dtypes.dtype, kind: Any) -> bool:
    """Whether a type is of a kind: a name of the standard's, a dtype, or a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, dtypes.dtype):
        return dtype is kind
    if kind not in KINDS:
        raise ValueError(f"isdtype: no kind {kind!r}; there are {', '.join(KINDS)}")
    if dtype.category not in KINDS[kind]:
        return False
    return "signed" not in kind or dtype.is_signed == kind.startswith("signed")


def result_type(*arrays_and_dtypes: Any) -> dtypes.dtype:
    """The type that tensors and dtypes promote to, whatever the tensors' dimensions; numbers
    count only where they are of a higher kind.
    """
    numbers = [each for each in arrays_and_dtypes if isinstance(each, bool | int | float | complex)]
    others = [_dtype(each) for each in arrays_and_dtypes if not _is_number(each)]
    if not others:
        raise ValueError("result_type: give at least one tensor or dtype")
    of = reduce(torch.promote_types, others)
    for number in numbers:  # an empty vector: a tensor with dimensions, of that type
        of = torch.result_type(torch.empty(0, dtype=of), number)
    return of


def alike(*given: Any) -> list[Tensor]:
    """Tensors and numbers as tensors of the type they promote to."""
    first = next((each for each in given if isinstance(each, Tensor)), None)
    if first is None:
        raise TypeError("give at least one tensor, not only numbers")
    if all(isinstance(each, Tensor) and each.dtype is first.dtype for each in given):
        return list(given)
    of = result_type(*given)
    return [
        each.to(of)
        if isinstance(each, Tensor)
        else torch.tensor(each, dtype=of, device=first.device)
        for each in given
    ]


def _is_number(given: Any) -> bool:
    return isinstance(given, bool | int | float | complex)


def _dtype(given: Any) -> dtypes.dtype:
    if isinstance(given, dtypes.dtype):
        return given
    if isinstance(given, Tensor):
        return given.dtype
    raise TypeError(f"expected a tensor or a dtype, not {type(given).__name__}")
