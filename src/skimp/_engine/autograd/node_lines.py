"""Which line of the user's program made a node: kept as a code object and a place in it, read when
somebody asks.

Keeping the two costs a fifth of a microsecond; finding the line number costs ten times that, so it
waits.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from types import CodeType, FrameType
from typing import Any

from skimp._engine.memory.call_site import OWN_CODE
from skimp._kernels import compiled

# file names of this package, learned as they are met, and of what enters its context managers
INSIDE: set[str] = {contextlib.__file__}
OUTSIDE: set[str] = set()  # and all others
# `outside` of a frame, by the files that are known, in C where that is compiled
caller: Any = getattr(compiled.loops(), "caller", None)
TRACE: list[bool] = []  # holds something while anomaly mode is on anywhere


def here() -> tuple[CodeType | None, int]:
    """The user's code and the place in it."""
    return outside(sys._getframe(1))


def outside(f: FrameType | None) -> tuple[CodeType | None, int]:
    """The nearest frame, from `f` on, that is not this package's."""
    inside = INSIDE
    while f is not None:
        while (code := f.f_code).co_filename in inside:  # most of the frames: no more than this
            if (f := f.f_back) is None:
                return None, 0
        if code.co_filename in OUTSIDE or not _is_inside(code.co_filename):
            return code, f.f_lasti
    return None, 0


def _is_inside(name: str) -> bool:
    if name in INSIDE:
        return True
    inside = name.startswith(OWN_CODE)
    (INSIDE if inside else OUTSIDE).add(name)
    return inside


def number(code: CodeType, lasti: int) -> int:
    """The line of a place in a code object."""
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


def describe(code: CodeType | None, lasti: int) -> str:
    """`train.py:12 in step` with the line's text, for a message."""
    if code is None:
        return "an unknown line"
    line = number(code, lasti)
    text = linecache.getline(code.co_filename, line).strip()
    place = f"{code.co_filename}:{line}"
    return f"{place}, `{text}`" if text else place


def trace() -> str:
    """The stack down to the user's line, as anomaly mode prints it."""
    import traceback  # in anomaly mode, which few ask for

    frames = [f for f in traceback.extract_stack() if not _is_inside(f.filename)]
    return "".join(traceback.format_list(frames))


def of(node: Any) -> str:
    """The line at which a node's op was called."""
    return describe(node._skimp_code, node._skimp_lasti)
