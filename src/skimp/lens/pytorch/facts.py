"""What hooks tell while a program runs on PyTorch, in the order in which it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skimp.lens.collect import Role

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


Fact = Became | Saved | Edge | StepEnds


def address(tensor: Any) -> int:
    """Of the bytes that a tensor of PyTorch's lies on; 0 where it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):  # sparse tensors and wrappers have no storage
        return 0
