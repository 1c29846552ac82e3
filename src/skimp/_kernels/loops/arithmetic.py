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

    rows_row = _into = _read = _bits = _bytes = _doubles = _places = _of

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

    def rows_aligned(x: Any) -> Any:
        """An array whose memory lies as C wants it."""
        return x

    def rows_kept(x: Any, dims: Any, ones: Any) -> Any:
        """A new array of the first dims of one, and so many dims of size 1 (`rows.h`)."""
        return np.empty((*x.shape[:dims], *(1,) * ones), np.float32)

    def rows_width(x: Any, dim: Any) -> Any:
        """How long the rows along a dim are, if that is the last of a small array of float32
        without gaps; 0 of any other."""
        if type(x) is not np.ndarray or type(dim) is not int or dim not in (-1, x.ndim - 1):
            return 0
        if not 0 < x.size < 8192:
            return 0
        return x.shape[-1] if x.ndim and x.dtype.char == "f" and x.flags.c_contiguous else 0

    def rows_is_size(x: Any, n: Any) -> Any:
        """Whether it is a tuple of this size alone."""
        return x == (n,)

    def rows_are_classes(x: Any, of: Any) -> Any:
        """Whether it has a whole number without gaps for each row of a matrix."""
        if x.dtype.char != "l" or not x.flags.c_contiguous:
            return False
        return of.ndim == 2 and x.shape == of.shape[:1]

    def rows_is_alike(x: Any, like: Any) -> Any:
        """Whether it is another of float32 without gaps, in the same shape."""
        return x.shape == like.shape and x.dtype.char == "f" and x.flags.c_contiguous

    def rows_is_row(x: Any, n: Any) -> Any:
        """Whether it is a row of so many float32 without gaps, or None."""
        return x is None or (x.shape == (n,) and x.dtype.char == "f" and x.flags.c_contiguous)

    def rows_per_row(x: Any) -> Any:
        """A new array of one number for each row along the last dim."""
        return rows_kept(x, x.ndim - 1, 1)

    def rows_places(x: Any) -> Any:
        return x.reshape(-1)

    def rows_around(x: Any, dim: Any, around: Any) -> Any:
        """How many elements of float32 without gaps dims before one have, it has itself, and those
        after it; whether it is that."""
        if x.dtype.char != "f" or not x.flags.c_contiguous or not x.size or type(dim) is not int:
            return False
        if not -x.ndim <= dim < x.ndim:
            return False
        dim %= x.ndim
        around[:] = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
        return True

    def rows_first(x: Any, dim: Any, k: Any) -> Any:
        """A new array for the first k of each row along a dim."""
        dim %= x.ndim
        return np.empty((*x.shape[:dim], k, *x.shape[dim + 1 :]), np.float32)

    def rows_places_like(x: Any) -> Any:
        """A new array of places beside another."""
        return np.empty(x.shape, np.int64)

    def rows_new(n: Any) -> Any:
        """A new row of so many numbers; of places."""
        return np.empty(n, np.float32)

    def rows_new_places(n: Any) -> Any:
        return np.empty(n, np.int64)

    def rows_words(x: Any, at: Any, n: Any) -> Any:
        """Where so many of an engine's words lie, from a place on."""
        return x[at : at + n]

    def rows_like(x: Any) -> Any:
        """A new array like one of float32."""
        return np.empty(x.shape, np.float32)

    def rows_size(x: Any) -> Any:
        return x.size

    def rows_floats(x: Any) -> Any:
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
