"""oneDNN's primitives, by the addresses of its functions (`primitives.h`)."""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:
    import ctypes
    import struct

    _AT, _INT = ctypes.c_void_p, ctypes.c_int
    _PUT = ctypes.CFUNCTYPE(_INT, _AT, _AT)
    _EXECUTE = ctypes.CFUNCTYPE(_INT, _AT, _AT, _INT, _AT)


def executed(plan: Any, where: Any) -> Any:
    """Tell memory where it lies, and run primitives on it; whether oneDNN could.

    `plan`: words of 64 bits. Where the functions are that tell memory its place and that run a
    primitive; then of each part how often it does the one and the other; for each memory itself,
    which of the places in `where`, and how many bytes behind that; and for each primitive itself,
    its stream, how many arguments it has, and where they are.
    """
    if cython.compiled:
        return primitives_executed(plan, where)  # type: ignore[name-defined] # noqa: F821
    put, execute, *words = struct.unpack(f"{len(plan) // 8}q", plan)
    rest = iter(words)
    for spots in rest:
        calls = next(rest)
        for _ in range(spots):
            memory, base, behind = next(rest), next(rest), next(rest)
            if _PUT(put)(memory, where[base] + behind):
                return False
        for _ in range(calls):
            if _EXECUTE(execute)(next(rest), next(rest), next(rest), next(rest)):
                return False
    return True
