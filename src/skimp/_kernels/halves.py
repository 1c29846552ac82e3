"""float32 to half precision and back, by a loop where `skimp compile` has made one: NumPy's own
take one element after the other."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from skimp._kernels import compiled

Array = NDArray[Any]
_FEW: Final = 256  # elements below which NumPy's call takes less time than the loop's views
_BITS: Final = np.dtype(np.uint16)
_WIDE: Final = np.dtype(np.uint32)
_BRAIN: Final = np.dtype(ml_dtypes.bfloat16)


def put(source: Array, out: Array) -> bool:
    """Convert all elements, rounded to the nearest, ties to even; whether it is done. Not done is
    what is neither float32 to a half type nor float16 to float32, of one shape each, row by row.
    """
    pair = source.dtype.char + out.dtype.char
    if pair not in _PAIRS or out.size < _FEW or (loops := compiled.loops()) is None:
        return False
    if source.shape != out.shape or not (source.flags.c_contiguous and out.flags.c_contiguous):
        return False
    if pair == "ef":
        flat = out.reshape(-1)
        loops.widened(source.reshape(-1).view(_BITS), flat.view(_WIDE), flat)
    else:
        loop = loops.halved if pair == "fe" else loops.brain_halved
        loop(source.reshape(-1).view(_WIDE), out.reshape(-1).view(_BITS))
    return True


def retyped(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x.astype(dtype)` of an array that lies row by row."""
    if x.dtype.char + dtype.char in _PAIRS and x.size >= _FEW and x.flags.c_contiguous:
        made = np.empty(x.shape, dtype)
        if put(x, made):
            return made
    return x.astype(dtype)


_PAIRS: Final = frozenset({"fe", "ef", f"f{_BRAIN.char}"})
