"""The node of an op with a rule: what it saved comes out, its formulas run, what it saved goes."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import saving
from skimp._engine.autograd.nodes import Extra, Grads, Node
from skimp._engine.autograd.parts import wholes
from skimp._engine.autograd.rules import Plan, Rule


class OpNode(Node):
    """The node of an op with a rule; each rule has a subclass of its own, named as in PyTorch."""

    __slots__ = ("_skimp_plan", "_skimp_spans")
    rule: Rule
    _skimp_plan: Plan
    _skimp_spans: dict[str, int]  # edges by argument, where the plan has lists

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Any:
        """Run the formulas of the inputs that need gradients; nothing goes that was saved."""
        return wholes(self._skimp_plan.run(self, grads, wanted, True))

    def _skimp_release(self) -> None:
        """Forget what was saved, if a tensor was among it: what kept only numbers and shapes can
        run again, as in PyTorch.
        """
        plan = self._skimp_plan
        if plan.frees or (plan.frees_if_tensor and saving.holds_tensor(self)):
            self._skimp_saved = None

    def __getattr__(self, name: str) -> Any:
        return saving.attribute(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *saving.attributes(self)]


class FoldedNode(OpNode):
    """The node of a rule that unfolds (folded.py)."""

    __slots__ = ()

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        self._skimp_unfold()
        return self.next_functions  # of the class that it has now

    def __getattr__(self, name: str) -> Any:
        self._skimp_unfold()
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        self._skimp_unfold()
        return dir(self)

    def _skimp_more(self) -> Extra:
        self._skimp_unfold()
        return self._skimp_more()

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Any:
        self._skimp_unfold(wanted)
        return self.apply(grads, wanted)

    def _skimp_unfold(self, wanted: set[Node] | None = None) -> None:
        assert self.rule.unfolds is not None
        self.rule.unfolds(self)
        if wanted is not None:  # what leads to a wanted node is wanted
            for to in self._skimp_edges[::2]:
                if to is not None and not wanted.isdisjoint(to._skimp_edges[::2]):
                    wanted.add(to)
