"""What was copied and how it lay: the shape and strides of a copy's source, and who laid it out so.

A layout comes from a view (`x.t()`), which allocates nothing and is told to nobody. While somebody
records, the number that every view gets with its base, `_skimp_stale`, is noted: the line of each
view that does not lie row by row. Reading it costs more then, and only what refreshes histories
reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.generated import FIRST_CALL
from skimp._engine.memory import call_site
from skimp._engine.memory.call_site import Site, op_name
from skimp._engine.memory.layout import contiguous_strides
from skimp._engine.tensor.tensor import Tensor
from skimp.lens.noted import Noted

NONE: Final = -1  # the number of what is no view
_STALE: Final = Noted(Tensor, "_skimp_stale")
_LAID: Final = "_laid_at"
_SEEN: Final = "_has_laid"  # where the last view of a base that does not lie row by row was made


class Source(NamedTuple):
    """What was copied: its layout in elements, the id of its storage, and the view that laid it
    out, where it does not lie row by row.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: int = 0
    made: Site | None = None


def source(given: Any) -> Source | None:
    """How a tensor, an ndarray or the first of some lies; None for anything else."""
    if isinstance(given, Source):
        return given
    while isinstance(given, (tuple, list)) and given:
        given = given[0]
    if isinstance(given, np.ndarray):
        step = given.itemsize or 1
        return Source(given.shape, tuple([s // step for s in given.strides]))
    if not isinstance(given, Tensor) or given._hollow:
        return None
    layout = given._skimp_layout_of()
    shape, strides = tuple(layout.shape), tuple(layout.strides)
    return Source(shape, strides, id(given._storage), getattr(given, _LAID, None))


def of_op(op: str) -> Source | None:
    """What the program gave to the op that runs now, as its first argument."""
    frame = _entry()
    return None if frame is None or op_name(frame.f_code) != op else source(_first(frame))


def _entry() -> FrameType | None:
    """The outermost frame of this package below the program's."""
    frame: FrameType | None = sys._getframe(1)
    entry = None
    while frame is not None and call_site.is_ours(frame.f_code.co_filename):
        if frame.f_code is not FIRST_CALL:
            entry = frame
        frame = frame.f_back
    return entry


def _first(frame: FrameType) -> Any:
    """The first of a function's arguments that has elements; a wrapper's own stands before it."""
    given = [frame.f_locals.get(name) for name in frame.f_code.co_varnames[:2]]
    return next((g for g in given if isinstance(g, (Tensor, np.ndarray, list, tuple))), None)


def _noting(find: Callable[[], Site]) -> Callable[[Any, int], None]:
    """Is told of the number that a view gets, and notes who made those that don't lie row by row.
    `find` tells where an op was called.
    """

    get, put = _STALE.get, _STALE.put

    def noted(view: Any, value: int) -> None:
        seen = value == NONE or get(view) != NONE  # or it is being made
        put(view, value)
        if seen:
            return
        array = view._np
        if array is not None:
            if array.flags.c_contiguous:
                return
        else:
            layout = view._skimp_layout
            if layout is None or layout.strides == contiguous_strides(layout.shape):
                return
        laid: Site = find()
        base = view._base
        if base is not None:
            last = getattr(base, _SEEN, None)
            setattr(base, _SEEN, laid)
            if last is not None and last is not laid:  # perhaps a view of that one
                laid = _inherited() or laid
        setattr(view, _LAID, laid)

    return noted


def _inherited() -> Site | None:
    """Who laid out the tensor that the view is made of, if that lies in no rows already."""
    frame = _entry()
    given = None if frame is None else _first(frame)
    return getattr(given, _LAID, None) if isinstance(given, Tensor) else None


def watch(find: Callable[[], Site]) -> None:
    """Note who makes views from now on; `find` tells where an op is."""
    _STALE.on(_noting(find))


def unwatch() -> None:
    """Note no longer."""
    _STALE.off()
