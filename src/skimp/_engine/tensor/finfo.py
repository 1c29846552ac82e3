"""What the element types can hold: PyTorch's `finfo` and `iinfo`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from skimp._engine.tensor import dtypes, promotion

_DEFAULT: Final = object()  # None is an error, as in PyTorch
_OF_PYTHON: Final[dict[Any, dtypes.dtype]] = {
    bool: dtypes.bool,
    int: dtypes.int64,
    float: dtypes.float64,
    complex: dtypes.complex128,
}


@dataclass(frozen=True, init=False, repr=False, slots=True)
class finfo:  # noqa: N801  (PyTorch's name)
    """Range and precision of a floating-point type; a complex type has those of its parts.

    Without a type: of the default one. `dtype` is a name, "float32", not a dtype.
    """

    bits: int
    dtype: str
    eps: float
    max: float
    min: float
    resolution: float
    smallest_normal: float
    tiny: float

    def __init__(self, type: Any = _DEFAULT) -> None:
        of = promotion.get_default_dtype() if type is _DEFAULT else _checked(type, "finfo")
        if of.category < dtypes.FLOAT:
            raise TypeError(
                "torch.finfo() requires a floating point input type. "
                "Use torch.iinfo to handle 'torch.finfo'"
            )
        _fill(self, _limits_of(of))

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


@dataclass(frozen=True, init=False, repr=False, slots=True)
class iinfo:  # noqa: N801  (PyTorch's name)
    """Range of an integer type. `dtype` is a name, "int64", not a dtype."""

    bits: int
    dtype: str
    max: int
    min: int

    def __init__(self, type: Any) -> None:
        of = _checked(type, "iinfo")
        if of.category > dtypes.INT:
            raise TypeError(
                "torch.iinfo() requires an integer input type. "
                "Use torch.finfo to handle 'torch.iinfo'"
            )
        if of is dtypes.bool:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        info = np.iinfo(of.np)
        _fill(
            self, {"bits": info.bits, "dtype": of.name, "max": int(info.max), "min": int(info.min)}
        )

    def __repr__(self) -> str:
        # Six digits of the ends, as PyTorch prints them: iinfo(min=-2.14748e+09, ...).
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def _checked(given: Any, function: str) -> dtypes.dtype:
    """The dtype that is meant; Python's number types name theirs."""
    if isinstance(given, dtypes.dtype):
        return given
    if isinstance(given, type) and given in _OF_PYTHON:
        return _OF_PYTHON[given]
    raise TypeError(
        f"{function}(): argument 'type' (position 1) must be torch.dtype, "
        f"not {type(given).__name__}"
    )


@cache
def _limits_of(floating: dtypes.dtype) -> dict[str, Any]:
    """The fields of `finfo`. Programs ask for them in every step, and NumPy's take 3 us to find."""
    real = floating.to_real()
    # It knows NumPy's types and its own. Its stub has no types.
    info = ml_dtypes.finfo(real.np)  # type: ignore[no-untyped-call]
    smallest = float(info.smallest_normal)
    return {
        "bits": real.itemsize * 8,
        "dtype": real.name,
        # the spacing at 1: PyTorch's float8_e5m2fnuz has half of it
        "eps": float(info.eps) / (1 + (floating is dtypes.float8_e5m2fnuz)),
        "max": float(info.max),
        "min": float(info.min),
        # of all digits that the type keeps, and not rounded to the type, as NumPy's is
        "resolution": 10.0 ** -int(info.nmant * math.log10(2)),
        "smallest_normal": smallest,
        "tiny": smallest,
    }


def _fill(limits: finfo | iinfo, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(limits, name, value)  # frozen from now on
