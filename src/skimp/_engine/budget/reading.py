"""What a call reads: the storages of its tensors, and what of them is seen before it runs."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

from skimp._engine.budget import evictable
from skimp._engine.budget.evictable import Evictable
from skimp._engine.dispatch.row import Form, Op
from skimp._engine.tensor.tensor import Tensor

SIMPLE: Final = frozenset({int, float, bool, str, type(None)})


class Read:
    """What a call reads, and what of it is seen before the call."""

    __slots__ = ("away", "nbytes", "noted", "sizes", "states", "storages")

    def __init__(self) -> None:
        self.storages: list[Any] = []
        self.states: list[int] = []  # what grows when the bytes change
        self.sizes: list[int] = []
        self.nbytes = 0  # but for what the call itself has computed
        self.away = False  # one of them has to be made again
        self.noted = True  # writes to all of them are counted

    def stays(self, but: Any = None) -> bool:
        """Whether nothing of it has changed since, but for one."""
        states = self.states
        for i, s in enumerate(self.storages):
            if s.version + s.writes != states[i] and s is not but:
                return False
        return True


def reading(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Read | None:
    """See the storages of tensors among arguments; None: a call of these can't be noted."""
    read = Read()
    found, states, sizes, now = read.storages, read.states, read.sizes, perf_counter()
    values = [*args, *kwargs.values()] if kwargs else [*args]
    for value in values:
        kind = type(value)
        if kind in SIMPLE:
            continue
        if kind is list or kind is tuple:
            values += value  # after the others
            continue
        if not isinstance(value, Tensor):
            continue
        if value._hollow:
            return None
        s: Any = value._storage
        if s in found:
            continue
        if type(s) is not Evictable and not evictable.enrol(s):  # from now on, writes are counted
            read.noted = False
            states.append(s.version)
        else:
            states.append(s.version + s.writes)
            s.used = now
            if s.needs is not None:
                read.away = True
        size = s.size
        if size is None:
            size = len(s)
        found.append(s)
        sizes.append(size)
        if s.deferred is None:
            read.nbytes += size
    return read


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
