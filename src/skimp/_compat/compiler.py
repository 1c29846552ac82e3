"""The backend that torch.compile would use: one may be set, and nothing is compiled by it."""

from __future__ import annotations

from typing import Any

__all__ = ["get_default_backend", "set_default_backend"]

_backend: Any = "inductor"


def get_default_backend() -> Any:
    """The backend that `compile` would use where none is named."""
    return _backend


def set_default_backend(backend: Any) -> None:
    """Set that backend; it changes nothing else. None means the first one again."""
    global _backend
    _backend = "inductor" if backend is None else backend
