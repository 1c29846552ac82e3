"""torch.cpu: the CPU under the names that other devices have."""

from __future__ import annotations

import contextlib
from typing import Any

from skimp._compat import refusals
from skimp._engine.memory.ledger import settle
from skimp.cpu import amp

__all__ = [
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]
__getattr__ = refusals.names(__name__)


class Stream:
    """There is one stream of work on the CPU."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def synchronize(self) -> None:
        """Wait for all work: every promise delivers."""
        settle()


_stream = Stream()


def is_available() -> bool:
    """Whether there is a CPU."""
    return True


def is_initialized() -> bool:
    """The CPU needs no preparation."""
    return True


def device_count() -> int:
    """Number of CPU devices."""
    return 1


def current_device() -> str:
    """The name of the one device."""
    return "cpu"


def set_device(device: Any) -> None:
    """Accepted: there is one device."""


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _stream


def stream(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which that stream is the current one."""
    return contextlib.nullcontext(stream)


def synchronize(device: Any = None) -> None:
    """Wait for all work: every promise delivers."""
    settle()
