"""What is asked of arrays, and of the frames that call, several times for each op (`objects.h`)."""

from __future__ import annotations

import math
from typing import Any

import cython
import numpy as np


def _in_c(function: Any) -> Any:
    """What C has for the function, under its name."""
    return objects_function(function.__name__) if cython.compiled else function  # type: ignore # noqa: F821


@_in_c
def address(a: Any) -> Any:
    """Where an array's first element is."""
    return a.__array_interface__["data"][0]


@_in_c
def addresses(*arrays: Any) -> Any:
    """The same of each, as a list."""
    return [a.__array_interface__["data"][0] for a in arrays]


@_in_c
def dense(a: Any) -> Any:
    """Whether an array lies row by row."""
    return a.flags.c_contiguous


@_in_c
def floats(*arrays: Any) -> Any:
    """Whether all are float32 and lie row by row."""
    return all([a.dtype.char == "f" and a.flags.c_contiguous for a in arrays])


@_in_c
def kept_by(a: Any, base: Any) -> Any:
    """An array on the memory of another, which lies row by row, kept alive by an object whose
    `__array_struct__` is the other's."""
    return np.asarray(base)


@_in_c
def expanded(a: Any, sizes: Any, most: Any) -> Any:
    """An array that lies row by row, broadcast to whole sizes, as they are or as one tuple; None of
    any other, and where there would be so many elements or more."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple):
        (sizes,) = sizes
    more = len(sizes) - a.ndim
    if not a.flags.c_contiguous or not sizes or more < 0:
        return None
    if not all([type(n) is int for n in sizes]):
        return None
    own = (1,) * more + a.shape
    shape = tuple([own[i] if n == -1 and i >= more else n for i, n in enumerate(sizes)])
    fits = [0 < n in (m, n if m == 1 else m) for n, m in zip(shape, own, strict=True)]
    return np.broadcast_to(a, shape) if all(fits) and math.prod(shape) < most else None


@_in_c
def caller(frame: Any, inside: Any, users: Any) -> Any:
    """The code of the nearest frame, from this one on, whose file is one of the `users`', and the
    place in it; None where one before it has a file that is not `inside` either."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name in users:
            return frame.f_code, frame.f_lasti
        if name not in inside:
            return None
        frame = frame.f_back
    return None
