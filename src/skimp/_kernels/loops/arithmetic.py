"""What loops take of C's arithmetic, as plain Python has it."""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:  # else they are C's (`arithmetic.pxd`)
    import math

    import numpy as np

    root, log, sqrt, ldexp = math.sqrt, np.log, np.sqrt, np.ldexp
    float32, float64 = np.float32, np.float64

    def _of(x: Any) -> Any:
        """Where an array's numbers are, to be read; and to be written."""
        return x

    _doubles = _into = _places = _of

    def _lacks(x: Any) -> Any:
        """Whether there is no such array."""
        return x is None

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
