"""torch.distributed.checkpoint.stateful: what has a state dict, and is asked for it by `save`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """Objects in a state dict that give and take one of their own."""

    def state_dict(self) -> dict[str, Any]:
        """What is saved."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was saved."""
        ...
