"""What is asked of arrays, and of the frames that call, several times for each op (`objects.h`)."""

from __future__ import annotations

from typing import Any

import cython


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
