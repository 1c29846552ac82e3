"""torch._dynamo: what programs touch of it. Nothing is compiled."""

from __future__ import annotations

from typing import Any

from skimp._dynamo import config, eval_frame
from skimp._dynamo.eval_frame import OptimizedModule
from skimp.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    set_stance,
)

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "eval_frame",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "optimize",
    "reset",
    "set_stance",
]


def graph_break(msg: str = "") -> None:
    """There are no graphs to break."""


def mark_dynamic(t: Any, index: Any, **_: Any) -> None:
    """Accepted: shapes are always dynamic."""


mark_static = maybe_mark_dynamic = mark_dynamic


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Accepted: there are no graphs that would remember an address."""


def optimize(*_: Any, **__: Any) -> Any:
    """A decorator that gives the function itself."""
    return lambda f: f
