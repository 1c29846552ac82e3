"""torch.distributed: not available, as in a PyTorch that was built without it."""

from __future__ import annotations

__all__ = ["is_available", "is_initialized", "is_torchelastic_launched"]


def is_available() -> bool:
    """Whether processes can be joined to a group: never in this version."""
    return False


def is_initialized() -> bool:
    """Whether this process is part of a group."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process."""
    return False
