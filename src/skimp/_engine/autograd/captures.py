"""What a backward catches for who asked, instead of accumulating it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from skimp._engine.autograd import hooks
from skimp._engine.autograd.nodes import AccumulateGrad, Grads, Node
from skimp._engine.tensor.tensor import Tensor

_number_of = attrgetter("_skimp_number")


class Captures:
    """Where gradients are to be caught instead of accumulated: `autograd.grad`,
    `backward(inputs=...)`.
    """

    __slots__ = ("accumulate", "at", "found", "wanted")

    def __init__(self, edges: Sequence[tuple[Node | None, int]], accumulate: bool) -> None:
        self.accumulate = (
            accumulate  # backward(inputs=...): they get their .grad as usual, and nobody else does
        )
        self.at: dict[Node, list[tuple[int, int]]] = {}  # by node: (its output, place in `found`)
        for place, (node, index) in enumerate(edges):
            if node is not None:
                self.at.setdefault(node, []).append((index, place))
        self.found: list[Tensor | None] = [None] * len(edges)
        self.wanted: set[Node] = set()

    def search(self, origins: Sequence[Node]) -> None:
        """Find the nodes on a path to a caught gradient: only those run."""
        oldest = min([n._skimp_number for n in self.at], default=0)
        order: list[Node] = []
        seen: set[Node] = set()
        todo = list(origins)
        while todo:
            node = todo.pop()
            if node in seen or node._skimp_number < oldest:
                continue
            seen.add(node)
            order.append(node)
            todo += filter(None, node._skimp_edges[::2])
        for node in sorted(order, key=_number_of):
            if node in self.at or not self.wanted.isdisjoint(node._skimp_edges[::2]):
                self.wanted.add(node)

    def take(self, node: Node, grads: Grads) -> bool:
        """Catch what arrived at `node`, one of `at`; whether nothing beyond it is wanted.

        As in PyTorch, hooks of a caught tensor run first only where the gradient ends here.
        """
        if self.accumulate and type(node) is AccumulateGrad:
            return False
        ends = self.wanted.isdisjoint(node._skimp_edges[::2])
        if ends:
            if node._skimp_extra is not None:
                grads = hooks.on_outputs(node._skimp_extra, grads)
            if type(node) is AccumulateGrad:
                grads = hooks.of_leaf(node, grads)
        if not self.accumulate:
            for index, place in self.at[node]:
                self.found[place] = grads[index]
        return ends
