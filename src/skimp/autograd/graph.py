"""The graph as PyTorch's `torch.autograd.graph` shows it, and what ops use: Rule and record."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup
from skimp._engine.autograd.calls import GradientEdge, get_gradient_edge
from skimp._engine.autograd.graph_hooks import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    increment_version,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from skimp._engine.autograd.nodes import AccumulateGrad, Node
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Rule

__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "Rule", "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version", "record",
    "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip
__getattr__ = _lookup(__name__)
