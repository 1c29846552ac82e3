"""float32 to half precision and back, by a loop where `skimp compile` has made one: NumPy's own
take one element after the other."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from skimp._kernels import compiled, sharing

Array = NDArray[Any]
_FEW: Final = 256  # elements below which NumPy's call takes less time than the loop's views
_BITS: Final = np.dtype(np.uint16)
_WIDE: Final = np.dtype(np.uint32)
_BRAIN: Final = np.dtype(ml_dtypes.bfloat16)


def put(source: Array, out: Array) -> bool:
    """Convert all elements, rounded to the nearest, ties to even; whether it is done. Not done is
    what is neither float32 to a half type nor float16 to float32, of one shape each, row by row.
    """
    if (loops := _loops(source, out.dtype)) is None or source.shape != out.shape:
        return False
    if not (source.flags.c_contiguous and out.flags.c_contiguous):
        return False
    if out.dtype.char == "f":
        flat = out.reshape(-1)
        runs: tuple[Array, ...] = source.reshape(-1).view(_BITS), flat.view(_WIDE), flat
        sharing.call(loops.widened, out.size, sharing.BRIEF, *runs)
    else:
        loop = loops.halved if out.dtype.char == "e" else loops.brain_halved
        runs = source.reshape(-1).view(_WIDE), out.reshape(-1).view(_BITS)
        sharing.call(loop, out.size, sharing.BRIEF, *runs)
    return True


def retyped(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x.astype(dtype)` of an array that lies row by row."""
    if _loops(x, dtype) is None or not x.flags.c_contiguous:
        return x.astype(dtype)
    made = np.empty(x.shape, dtype)
    put(x, made)
    return made


def _loops(x: Array, dtype: np.dtype[Any]) -> Any:
    """The loops, where they are there, make one type of the other, and enough is to be made."""
    few = x.size < _FEW or x.dtype.char + dtype.char not in _PAIRS
    return None if few else compiled.loops()


_PAIRS: Final = frozenset({"fe", "ef", f"f{_BRAIN.char}"})
