"""The OpenBLAS in NumPy's wheels, and its product of matrices, by name and by address."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

TYPES: Final = {"f": ("sgemm", ctypes.c_float), "d": ("dgemm", ctypes.c_double)}
FEW: Final = 1 << 19  # multiplications up to which it shares no product that NumPy asks for,
ALONE: Final = (
    1 << 17
)  # and any, whatever is added or turned: it spins for others from some 2^18 on
LARGE: Final = 1 << 16  # elements of the larger factor from which a call from Python is nothing
INTEGERS: Final = (("64_", ctypes.c_int64), ("", ctypes.c_int32))  # by the ends of names


@cache
def library() -> ctypes.CDLL | None:
    """The OpenBLAS in NumPy's wheels; None with any other BLAS."""
    home = os.path.dirname(np.__file__)
    for folder in (f"{home}.libs", os.path.join(home, ".dylibs")):
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if "scipy_openblas" in name:
                return ctypes.CDLL(os.path.join(folder, name))
    return None


@cache
def gemm_of(kind: str) -> Callable[..., None] | None:
    """cblas_sgemm or cblas_dgemm, by the character of a type; None with another BLAS."""
    name, real = TYPES[kind]
    for suffix, integer in INTEGERS:
        found = getattr(library(), f"scipy_cblas_{name}{suffix}", None)
        if found is not None:
            matrix = (ctypes.c_void_p, integer)
            found.argtypes = (
                *[ctypes.c_int] * 3, *[integer] * 3, real, *matrix, *matrix, real, *matrix
            )  # fmt: skip
            found.restype = None
            return found  # type: ignore[no-any-return]
    return None


@cache
def place() -> tuple[int, bool] | None:
    """Where cblas_sgemm is, as loops of C call it, and whether its integers are of 64 bits."""
    gemm: Any = gemm_of("f")
    if gemm is None:
        return None
    where = ctypes.cast(gemm, ctypes.c_void_p).value
    assert where is not None
    return where, gemm.argtypes[3] is ctypes.c_int64
