"""Nodes of products: what they saved goes as soon as it was read, not when all formulas have run.

A product's gradients are as large as its factors. Where the first factor is made again for backward
(`remade.py`), its bytes and the bytes of its gradient would be there at once: in a transformer that
is the peak of the step. So the gradient of the second factor, the small one in most programs, is
computed first, and what only it reads goes before the next one is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skimp._engine.autograd import saving
from skimp._engine.autograd.engine import retains
from skimp._engine.autograd.nodes import Node

if TYPE_CHECKING:
    from skimp._engine.autograd.record import OpNode
    from skimp._engine.tensor.tensor import Tensor


def sheds(node: OpNode, g: Tensor) -> bool:
    """Whether `shed` is for this node and the gradient of its output: a large one."""
    return (
        node._plan.rule.sheds
        and g._np is None
        and not g._hollow
        and bool(node._saved)
        and len(node._edges) == 2 * len(node._plan.rule.names)
        and not retains()
    )


def shed(node: OpNode, g: Tensor, wanted: set[Node] | None) -> list[Any]:
    """Run the formulas from the last to the first, and let go of what no other will read."""
    values: list[Any] = [g]
    saving.unpack(node, values)
    edges = node._edges
    steps = [
        step
        for step in node._plan.steps
        if (to := edges[2 * step.positions[0]]) is not None and (wanted is None or to in wanted)
    ]
    node.release()
    out: list[Any] = [None] * (len(edges) >> 1)
    while steps:
        step = steps.pop()
        out[step.positions[0]] = step.formula(*[values[i] for i in step.reads])
        later = {i for one in steps for i in one.reads}
        for i in step.reads:
            if i not in later:
                values[i] = None
    return out
