"""What hooks tell while a program runs on PyTorch, in the order in which it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skimp.lens.collect import Role
from skimp.lens.layouts import Source

CALL = "skimp#"  # how marks of calls are named among the profiler's events, with a place's index
FACT = "skimp!"  # and those of facts, with their number


@dataclass(frozen=True, slots=True)
class Became:
    """The bytes at an address have a role."""

    address: int
    role: Role


@dataclass(frozen=True, slots=True)
class Saved:
    """A node of the graph saved what lies at an address; or (`back`) has let it go."""

    address: int
    back: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A phase begins or ends."""

    kind: str  # "forward", "backward", "optimizer"
    name: str
    begins: bool


@dataclass(frozen=True, slots=True)
class StepEnds:
    """An optimizer has stepped."""


@dataclass(frozen=True, slots=True)
class Given:
    """What an op that copies by nature was given, by its place."""

    place: int
    source: Source


@dataclass(frozen=True, slots=True)
class Copied:
    """A call has copied: from one storage to another, or (not `forced`) over what was there."""

    place: int
    op: str
    bytes: int
    source: Source | None
    forced: bool


Fact = Became | Saved | Edge | StepEnds | Given | Copied


def address(tensor: Any) -> int:
    """Of the bytes that a tensor of PyTorch's lies on; 0 where it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):  # sparse tensors and wrappers have no storage
        return 0
