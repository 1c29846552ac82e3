"""The graph, as PyTorch's `torch.autograd.graph` shows it, and what ops use of it: Rule and record."""

from __future__ import annotations

from skimp.autograd.calls import GradientEdge, get_gradient_edge
from skimp.autograd.nodes import AccumulateGrad, Node
from skimp.autograd.record import record, record1, record2
from skimp.autograd.rules import Rule

__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "Rule", "get_gradient_edge", "record", "record1", "record2",
]  # fmt: skip
