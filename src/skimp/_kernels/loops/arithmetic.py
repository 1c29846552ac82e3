"""What loops take of C's arithmetic, as plain Python has it."""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:  # else they are C's (`arithmetic.pxd`)
    import math

    import numpy as np

    root, log, sqrt, ldexp = math.sqrt, np.log, np.sqrt, np.ldexp
    float32, float64 = np.float32, np.float64
    _MATRIX, _MASK, _OTHER_MASK = 0x9908B0DF, 0x9D2C5680, 0xEFC60000  # mt19937's

    def _of(x: Any) -> Any:
        """Where an array's numbers are, to be read; and to be written."""
        return x

    _into = _read = _bits = _bytes = _doubles = _places = _of

    def _table(n: Any) -> Any:
        """Room for where so many arrays are, and for so many sizes; `_released` takes it back."""
        return [None] * n

    _sizes = _table

    def _room(n: Any) -> Any:
        """The same, of so many words."""
        return np.empty(n, np.uint32)

    def _released(table: Any) -> None:
        del table

    def _past(table: Any, k: Any) -> Any:
        """What it has from the k-th on."""
        return table[k:]

    _behind = _past

    def _lacks(x: Any) -> Any:
        """Whether there is no such array."""
        return x is None

    def bare_aligned(x: Any) -> Any:
        """An array whose memory lies as C wants it."""
        return x

    def bare_kept(x: Any, dims: Any, ones: Any) -> Any:
        """A new array of the first dims of one, and so many dims of size 1 (`bare.h`)."""
        return np.empty((*x.shape[:dims], *(1,) * ones), np.float32)

    def bare_size(x: Any) -> Any:
        return x.size

    def bare_floats(x: Any) -> Any:
        """Where its numbers are."""
        return x.reshape(-1)

    def _fused(a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        return float32(float64(a) * float64(b) + float64(c))

    _once = _fused
    _single = _rounded = float32

    def _whole_of(x: Any) -> Any:
        """The bits of a float32 as a whole number; and of such bits the number."""
        return int(float32(x).view(np.int32))

    def _float_of(bits: Any) -> Any:
        return np.int32(bits).view(float32)
