"""torch.fx: refused, for nothing is traced."""

from __future__ import annotations

from skimp.refusals import names

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
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "subgraph_rewriter",
    "symbolic_trace",
    "wrap",
)
__all__ = list(_NAMES)
__getattr__ = names(__name__, _NAMES, "skimp traces no programs; call the module as it is")
