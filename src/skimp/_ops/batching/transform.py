"""The transform of what tensors under vmap take part in: calls of ops, draws, nodes of graphs."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.nodes import Node
from skimp._engine.dispatch.batched import Level
from skimp._engine.dispatch.transforms import BATCHING, TRANSFORMS
from skimp._ops.batching.call import Calls, node_by_samples
from skimp._ops.batching.random import drawn
from skimp.errors import BatchedArgument


class Batching(Calls):
    """All of it."""

    def draw(self, level: Level, name: str, f: Any, given: dict[str, Any]) -> Any:
        """As the vmap's `randomness` says."""
        return drawn(level, name, f, given)

    def node(
        self, node: Node, grads: list[Any], wanted: set[Node] | None, refused: BatchedArgument
    ) -> Any:
        """Sample by sample."""
        return node_by_samples(node, grads, wanted, refused)


TRANSFORMS[BATCHING] = Batching()
