"""The element types: PyTorch's names on NumPy's types."""

from __future__ import annotations

import builtins
from typing import Any, Final

import ml_dtypes
import numpy as np

BOOL, INT, FLOAT, COMPLEX = range(4)  # categories, in the order of promotion


class dtype:  # noqa: N801  (PyTorch's name)
    """An element type. `np` is the NumPy type of the same bytes, `itemsize` its size in bytes."""

    __slots__ = (
        "category", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "np",
    )  # fmt: skip

    def __init__(
        self, name: str, np_dtype: Any, category: int, is_signed: builtins.bool = True
    ) -> None:
        self.name: Final = name
        self.np: Final[np.dtype[Any]] = np.dtype(np_dtype)
        self.category: Final = category
        self.itemsize: Final[int] = self.np.itemsize
        self.is_floating_point: Final = category == FLOAT
        self.is_complex: Final = category == COMPLEX
        self.is_signed: Final = is_signed

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # a module-level singleton: pickles by name

    @property
    def abbr(self) -> str:
        """The name's short form: f32, i64, u8, bf16, c64, b8."""
        if self.category == BOOL:
            return "b8"
        short = self.name.replace("_", "")
        for word in ("uint", "int", "bfloat", "float", "complex"):
            short = short.replace(word, "bf" if word == "bfloat" else word[0])
        return short

    def to_complex(self) -> dtype:
        """The complex type whose parts are this type (PyTorch: dtype.to_complex)."""
        return _TO_COMPLEX.get(self, complex64)

    def to_real(self) -> dtype:
        """The type of this type's real part; itself where it is not complex."""
        return {complex64: float32, complex128: float64}.get(self, self)


bool = dtype("bool", np.bool_, BOOL, is_signed=False)
uint8 = dtype("uint8", np.uint8, INT, is_signed=False)
int8 = dtype("int8", np.int8, INT)
int16 = dtype("int16", np.int16, INT)
int32 = dtype("int32", np.int32, INT)
int64 = dtype("int64", np.int64, INT)
float16 = dtype("float16", np.float16, FLOAT)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, FLOAT)
float32 = dtype("float32", np.float32, FLOAT)
float64 = dtype("float64", np.float64, FLOAT)
uint16 = dtype("uint16", np.uint16, INT, is_signed=False)
uint32 = dtype("uint32", np.uint32, INT, is_signed=False)
uint64 = dtype("uint64", np.uint64, INT, is_signed=False)
float8_e4m3fn = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, FLOAT)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, FLOAT)
float8_e5m2 = dtype("float8_e5m2", ml_dtypes.float8_e5m2, FLOAT)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, FLOAT)
float8_e8m0fnu = dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, FLOAT, is_signed=False)
complex64 = dtype("complex64", np.complex64, COMPLEX)
complex128 = dtype("complex128", np.complex128, COMPLEX)

ALL: Final = (
    bool, uint8, int8, int16, int32, int64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
# What kernels are written for; the first three are PyTorch's AT_DISPATCH_..._TYPES.
INTEGRAL: Final = frozenset({uint8, int8, int16, int32, int64})
FLOATING: Final = frozenset({float32, float64})
FLOATING_AND_COMPLEX: Final = frozenset({float32, float64, complex64, complex128})
INT64_END: Final = 1 << 63  # sizes, strides and numbers of PyTorch's are below it
HALVES: Final = (float16, bfloat16)
# Types that PyTorch stores, converts and views, and in which few of its ops compute.
UNSIGNED: Final = (uint16, uint32, uint64)
FLOAT8: Final = (float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu)
NARROW: Final = (*UNSIGNED, *FLOAT8)
FOREIGN: Final = frozenset({bfloat16, *FLOAT8})  # which NumPy itself does not know
FROM_NUMPY: Final[dict[np.dtype[Any], dtype]] = {d.np: d for d in (*ALL, *NARROW)}
ALIASES: Final = {
    "short": int16, "int": int32, "long": int64, "half": float16, "float": float32,
    "double": float64, "cfloat": complex64, "cdouble": complex128,
}  # fmt: skip
_TO_COMPLEX = {
    float32: complex64,
    float64: complex128,
    complex64: complex64,
    complex128: complex128,
}

# What Python's own types mean where a dtype is asked for.
_PYTHON: Final[dict[Any, dtype]] = {
    builtins.bool: bool,
    builtins.int: int64,
    builtins.float: float64,
    builtins.complex: complex128,
}


def accumulator(d: dtype) -> dtype:
    """The type in which elements of `d` are added up (PyTorch: opmath_type)."""
    return float32 if d in HALVES else d


def asked(given: Any) -> Any:
    """The dtype that an argument means; what means none comes back as it is."""
    return _PYTHON.get(given, given) if isinstance(given, type) else given
