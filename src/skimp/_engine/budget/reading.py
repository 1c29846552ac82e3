"""What a call reads: the storages of its tensors, and what of them is seen before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any, Final

from skimp._engine.budget import evictable
from skimp._engine.budget.evictable import Evictable
from skimp._engine.dispatch.row import Form, Op
from skimp._engine.tensor.tensor import Tensor

SIMPLE: Final = frozenset({int, float, bool, str, type(None)})


class Read:
    """What a call reads, and what of it is seen before the call."""

    __slots__ = ("away", "nbytes", "noted", "now", "sizes", "states", "storages")

    def __init__(self) -> None:
        self.storages: list[Any] = []
        self.states: list[int] = []  # what grows when the bytes change
        self.sizes: list[int] = []
        self.nbytes = 0
        self.now = perf_counter()
        self.away = False  # one of them has to be made again
        self.noted = True  # writes to all of them are counted


def reading(args: Iterable[Any], read: Read) -> bool:
    """See the storages of tensors among arguments; False: a call of these can't be noted."""
    found = read.storages
    for value in args:
        kind = type(value)
        if kind in SIMPLE:
            continue
        if kind is list or kind is tuple:
            if not reading(value, read):
                return False
            continue
        if not isinstance(value, Tensor):
            continue
        if value._hollow:
            return False
        s: Any = value._storage
        if s in found:
            continue
        if type(s) is not Evictable and not evictable.enrol(s):  # from now on, writes are counted
            read.noted = False
            read.states.append(s.version)
        else:
            read.states.append(s.version + s.writes)
            s.used = read.now
            if s.needs is not None:
                read.away = True
        size = s.size
        if size is None:
            size = len(s)
        found.append(s)
        read.sizes.append(size)
        read.nbytes += size
    return True


def may_be_in_place(form: Form) -> bool:
    """Whether calls of a form that is not `name_` write to their first argument if told so."""
    return not form.writes and "inplace" in _names(form.op)


def is_in_place(form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call writes to its first argument."""
    if form.writes or not may_be_in_place(form):
        return form.writes
    at = _names(form.op).index("inplace")
    return bool(args[at] if len(args) > at else kwargs.get("inplace"))


def _names(op: Op) -> list[str]:
    return [name for name, _, _ in op.parameters]


def states(found: Iterable[Any]) -> list[int]:
    """What grows when the bytes change."""
    return [s.version + s.writes for s in found]
