"""Nodes of products: what they saved goes as soon as it was read, not when all formulas have run.

A product's gradients are as large as its factors. Where the first factor is made again for backward
(`remade.py`), its bytes and the bytes of its gradient would be there at once: in a transformer that
is the peak of the step. So the gradient of the second factor, the small one in most programs, is
computed first, and what only it reads goes before the next one is made.
"""

from __future__ import annotations

from typing import Any

from skimp.autograd import saving
from skimp.autograd.engine import retains
from skimp.autograd.nodes import Grads, Node
from skimp.autograd.record import OpNode


class SheddingNode(OpNode):
    """Runs its formulas from the last to the first, and lets go of what no other will read."""

    __slots__ = ()

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Any:
        g = grads[0]
        names = self._plan.rule.names
        edges = self._edges
        if (
            g is None
            or g._np is not None
            or not self._saved
            or len(edges) != 2 * len(names)
            or retains()
        ):
            return super().apply(grads, wanted)
        values: list[Any] = [g]
        saving.unpack(self, values)
        steps = [
            step
            for step in self._plan.steps
            if (to := edges[2 * step.positions[0]]) is not None and (wanted is None or to in wanted)
        ]
        self.release()
        out: list[Any] = [None] * len(names)
        while steps:
            step = steps.pop()
            out[step.positions[0]] = step.formula(*[values[i] for i in step.reads])
            later = {i for one in steps for i in one.reads}
            for i in step.reads:
                if i not in later:
                    values[i] = None
        return out
