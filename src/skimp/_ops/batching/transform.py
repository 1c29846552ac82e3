"""The transform of what tensors under vmap take part in: calls of ops, draws, nodes of graphs."""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.batched import Level
from skimp._engine.dispatch.transforms import BATCHING, TRANSFORMS
from skimp._ops.batching.call import Calls
from skimp._ops.batching.random import drawn


class Batching(Calls):
    """All of it."""

    def draw(self, level: Level, name: str, f: Any, given: dict[str, Any]) -> Any:
        """As the vmap's `randomness` says."""
        return drawn(level, name, f, given)


TRANSFORMS[BATCHING] = Batching()
