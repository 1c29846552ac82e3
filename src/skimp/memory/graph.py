"""What a graph keeps alive, found as the garbage collector would find it: count the references that
come from inside of the graph; what has others is held by somebody else, and so is all it leads to.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.autograd import saved as graphs
from skimp._engine.autograd.node_lines import number
from skimp._engine.interpreter import HELD_BY_ATTRIBUTE
from skimp._engine.memory.sizes import readable
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.tensor import Tensor

_OUTSIDE: Final = (
    *(str, bytes, int, float, complex, bool, type(None), type, ModuleType, CodeType),
    *(BuiltinFunctionType, np.dtype, np.generic, np.ufunc),
)


class Kept(NamedTuple):
    """A tensor that a graph keeps: for backward `alone` if dropping the graph frees its bytes."""

    op: str  # of the node, as PyTorch names it
    name: str  # of the saved value
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int  # of its storage; 0 where an entry above has the same storage
    alone: bool
    line: str  # `model.py:11`

    def __str__(self) -> str:
        why = "backward alone" if self.alone else "alive anyway"
        what = f"{self.op}.{self.name}" if self.name else self.op
        return f"{readable(self.nbytes):>12}  {why:<14}  {what} {list(self.shape)}  {self.line}"


class KeptList(list[Kept]):
    """The entries, newest node first. `nbytes` is what dropping the graph frees."""

    @property
    def nbytes(self) -> int:
        return sum([one.nbytes for one in self if one.alone])

    def __repr__(self) -> str:
        rows = [str(one) for one in self]
        return "\n".join([*rows, f"{readable(self.nbytes):>12}  are freed with the graph"])

    __str__ = __repr__


def saved(*outputs: Tensor) -> KeptList:
    """What the graph behind `outputs` keeps for backward, by op and line, and whether it is kept
    for backward alone. The list's `nbytes` is what the ledger will count as freed when the outputs
    let go of their graph. Deferred expressions that were not computed keep nothing yet.

    Shape: any.
    Dtypes: floating point and complex numbers.
    Raises: AttributeError for what is no tensor.
    Memory: the list holds the saved tensors themselves, no copies.
    """
    freed = freed_with([t._skimp_node for t in outputs if t._skimp_node is not None])
    found = KeptList()
    seen: set[int] = set()
    for node in graphs.nodes(outputs):
        for name, value in graphs._entries(node):
            if not isinstance(value, Tensor) or value._hollow:
                continue
            s = value._storage
            nbytes = 0 if id(s) in seen else max(s.nbytes, 0)
            seen.add(id(s))
            code = node._skimp_code
            at = f"{code.co_filename}:{number(code, node._skimp_lasti)}" if code is not None else ""
            shape = tuple(value.shape)
            found.append(
                Kept(node._skimp_label, name, shape, value.dtype, nbytes, id(s) in freed, at)
            )
    rest = sum([nbytes for key, nbytes in freed.items() if key not in seen])
    if rest:
        found.append(Kept("kept in other ways", "", (), None, rest, True, ""))
    return found


def freed_with(roots: list[Any]) -> dict[int, int]:
    """Ids and bytes of the storages that go when the tensors with these nodes drop them."""
    objects, places = _inside(roots)
    inner = [0] * len(objects)
    for i in range(len(objects)):
        for other in _referents(objects[i]):
            at = places.get(id(other))
            if at is not None:
                inner[at] += 1
        other = None
    for root in roots:
        inner[places[id(root)]] += 2  # the output's own, and that of `roots`
    root = None
    outer = [sys.getrefcount(objects[i]) - inner[i] for i in range(len(objects))]
    alive = [i for i, n in enumerate(outer) if n > HELD_BY_ATTRIBUTE]  # as an item of `objects`
    held = set(alive)
    while alive:
        for other in _referents(objects[alive.pop()]):
            at = places.get(id(other))
            if at is not None and at not in held:
                held.add(at)
                alive.append(at)
    return {
        id(one): one.nbytes
        for i, one in enumerate(objects)
        if i not in held and issubclass(type(one), Storage) and one.nbytes >= 0
    }


def _inside(roots: Iterable[Any]) -> tuple[list[Any], dict[int, int]]:
    """All that nodes lead to, and the place of each object by its id."""
    objects: list[Any] = []
    places: dict[int, int] = {}
    for root in roots:
        if id(root) not in places:
            places[id(root)] = len(objects)
            objects.append(root)
    at = 0
    while at < len(objects):
        for other in _referents(objects[at]):
            if id(other) not in places and not issubclass(type(other), _OUTSIDE):
                places[id(other)] = len(objects)
                objects.append(other)
        at += 1
    return objects, places


def _referents(value: Any) -> Iterable[Any]:
    kind = type(value)
    if issubclass(kind, np.ndarray):  # the garbage collector is not told of its base
        return () if value.base is None else (value.base,)
    if issubclass(kind, memoryview):
        return (value.obj,)
    if issubclass(kind, FunctionType):
        return value.__closure__ or ()  # not its module
    return gc.get_referents(value)
