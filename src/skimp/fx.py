"""torch.fx: refused, for nothing is traced; what only marks functions for tracing does nothing."""

from __future__ import annotations

from typing import TypeVar

from skimp._compat.refusals import names

T = TypeVar("T")

_NAMES = (
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "map_arg",
    "replace_pattern",
    "subgraph_rewriter",
    "symbolic_trace",
)
__all__ = ["has_side_effect", "wrap"]
__all__.extend(_NAMES)
__getattr__ = names(__name__, _NAMES, "skimp traces no programs; call the module as it is")


def wrap(fn_or_name: T) -> T:
    """The function, or its name, as it is."""
    return fn_or_name


def has_side_effect(fn: T) -> T:
    """The function as it is."""
    return fn
