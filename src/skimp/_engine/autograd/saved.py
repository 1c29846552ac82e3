"""What the graph behind a tensor keeps: `skimp.autograd.saved(loss)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from skimp._engine.autograd import node_lines as lines
from skimp._engine.autograd.nodes import Node, shape_of
from skimp._engine.autograd.rules import Plan
from skimp._engine.autograd.saving import Many, Packed, Withheld
from skimp._engine.tensor.tensor import Tensor


class Saved(NamedTuple):
    """One tensor that one node keeps.

    `kind`: "saved" (alive because of the graph, as far as it knows), "leaf" (a leaf's own bytes),
    "shared" (bytes that an entry above keeps already), "deferred" (it costs nothing yet),
    "packed" (whatever a hook made of it).
    """

    op: str
    name: str
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int  # of its whole storage; 0 for expressions, shared entries and what hooks packed
    kind: str
    line: str


class SavedList(list[Saved]):
    """The entries, newest node first; `nbytes` is what they keep together."""

    @property
    def nbytes(self) -> int:
        return sum([one.nbytes for one in self])

    def __str__(self) -> str:
        rows = [
            f"{one.nbytes:>14,}  {one.kind:<8}{one.op}.{one.name} {list(one.shape)} {one.dtype}  "
            f"{one.line}"
            for one in self
        ]
        return "\n".join([*rows, f"{self.nbytes:>14,}  bytes in all"])


def saved(*outputs: Any) -> SavedList:
    """Every tensor that the graph of `outputs` keeps for backward, with its bytes, op and line.

    Shape: any.
    Dtypes: floating point and complex numbers.
    Raises: AttributeError for what is no tensor.
    Memory: the list holds the tensors themselves, no copies.
    """
    found = SavedList()
    seen: set[int] = set()
    for node in nodes(outputs):
        for name, value in _entries(node):
            found.append(_entry(node, name, value, seen))
    return found


def nodes(outputs: Iterable[Any]) -> list[Node]:
    """All nodes behind tensors, newest first."""
    todo = [t.grad_fn if isinstance(t, Tensor) else t for t in outputs]
    found: set[Node] = set()
    while todo:
        node = todo.pop()
        if node is None or node in found:
            continue
        found.add(node)
        node._skimp_unfold()
        todo += node._skimp_edges[::2]
        inner = getattr(node, "fn", None)  # what a CopySlices runs
        todo.append(inner)
    return sorted(found, key=lambda n: -n._skimp_number)


def _entries(node: Any) -> Iterator[tuple[str, Any]]:
    saved = node._skimp_saved
    if not saved:
        return
    plan = node._skimp_plan
    if not isinstance(plan, Plan):  # a Function: [value, version, result]
        for i, entry in enumerate(saved):
            yield f"saved_tensors[{i}]", entry[0]
        return
    for i, slot in enumerate(plan.slots):
        value = saved[2 * i]
        if isinstance(value, Many):
            for k, one in enumerate(value.pairs[::2]):
                yield f"{slot.name}[{k}]", one
        elif isinstance(value, (Tensor, Packed)):
            yield slot.name, value


def _entry(node: Node, name: str, value: Any, seen: set[int]) -> Saved:
    line = lines.of(node)
    if isinstance(value, (Packed, Withheld)) or not isinstance(value, Tensor):
        return Saved(node._skimp_label, name, (), None, 0, "packed", line)
    s = value._storage
    if s.deferred is not None:
        kind, nbytes = "deferred", 0
    elif id(s) in seen:
        kind, nbytes = "shared", 0
    else:
        kind = (
            "leaf" if value._rg and value._skimp_node is None and value._base is None else "saved"
        )
        nbytes = len(s)
    seen.add(id(s))
    return Saved(node._skimp_label, name, shape_of(value), value._dtype, nbytes, kind, line)
