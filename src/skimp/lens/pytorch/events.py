"""The profiler's events in a row: allocations with their places, and marks, by time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from skimp.lens.pytorch.facts import CALL, FACT

_NODE = "autograd::engine::evaluate_function: "


class Allocation(NamedTuple):
    """Bytes that an address got (positive) or gave back.

    `place` is the index of the program's call inside of which it happened, -1 outside of all;
    `node` is the name of backward's node that ran, `forward` the place of the op it belongs to.
    """

    time: int  # ns
    address: int
    bytes: int
    place: int
    node: str
    forward: int


class Noted(NamedTuple):
    """The moment of a fact."""

    time: int
    fact: int


class _Where(NamedTuple):
    place: int = -1
    node: str = ""
    forward: int = -1


def events(tree: list[Any], sequence: dict[int, int]) -> list[Allocation | Noted]:
    """All of a profile's, oldest first. `sequence` remembers the places of forward's ops by the
    numbers that their nodes have, from one profile to the next.
    """
    found = list(_walk(tree, sequence))
    found.sort(key=lambda event: event.time)  # stable: of one time in the order of the tree
    return found


def _walk(tree: list[Any], sequence: dict[int, int]) -> Iterator[Allocation | Noted]:
    waiting = [(event, _Where()) for event in reversed(tree)]
    while waiting:
        event, where = waiting.pop()
        kind = event.tag.name
        if kind == "Allocation":
            fields = event.extra_fields
            if str(fields.device).startswith("cpu"):
                yield Allocation(event.start_time_ns, fields.ptr, fields.alloc_size, *where)
        elif kind == "TorchOp":
            name = event.name
            if name.startswith(FACT):
                yield Noted(event.start_time_ns, int(name.removeprefix(FACT)))
                continue
            where = _inside(name, event.extra_fields.sequence_number, where, sequence)
        waiting += [(child, where) for child in reversed(event.children)]


def _inside(name: str, number: int, where: _Where, sequence: dict[int, int]) -> _Where:
    """Where what happens inside of an op belongs to."""
    if name.startswith(CALL):
        return where._replace(place=int(name.removeprefix(CALL)))
    if name.startswith(_NODE):
        return where._replace(node=name.removeprefix(_NODE), forward=sequence.get(number, -1))
    if number >= 0 and not where.node and where.place >= 0:
        sequence.setdefault(number, where.place)
    return where
