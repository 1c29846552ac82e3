"""Copies of runs of memory, between arrays of one type and other strides (`copies.h`)."""

from __future__ import annotations

from typing import Any

import cython


def moved(source: Any, out: Any, threads: Any, asked: Any = False) -> Any:
    """out[...] = source. Whether it is done, as nothing is where types differ, elements of the last
    dim don't lie one after the other in both, or the two may share memory; or
    whether it would be, if that is what is `asked`."""
    if cython.compiled:
        return copies_moved(source, out, threads, asked)  # type: ignore[name-defined] # noqa: F821
    if not asked:
        out[...] = source
    return True
