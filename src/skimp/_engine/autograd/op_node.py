"""The node of an op with a rule: what it saved comes out, its formulas run, what it saved goes."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import saving
from skimp._engine.autograd.nodes import Grads, Node
from skimp._engine.autograd.rules import Plan, Rule


class OpNode(Node):
    """The node of an op with a rule; each rule has a subclass of its own, named as in PyTorch."""

    __slots__ = ("_skimp_plan", "_skimp_spans")
    rule: Rule
    _skimp_plan: Plan
    _skimp_spans: dict[str, int]  # edges by argument, where the plan has lists

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Any:
        """Run the formulas of the inputs that need gradients; nothing goes that was saved."""
        return self._skimp_plan.run(self, grads, wanted, True)

    def _skimp_release(self) -> None:
        """Forget what was saved, if a tensor was among it: what kept only numbers and shapes can
        run again, as in PyTorch.
        """
        plan = self._skimp_plan
        if plan.frees or (plan.frees_if_tensor and saving.holds_tensor(self)):
            self._skimp_saved = None

    def __getattr__(self, name: str) -> Any:
        return saving.attribute(self, name)
