"""Streams and events of torch.cuda. Without CUDA there is one queue of work, the host's own, so an
event notes the time when all work before it is done.
"""

from __future__ import annotations

import time
from typing import Any

from skimp._engine.memory.ledger import materialize_pending

__all__ = ["Event", "ExternalStream", "Stream"]


class Stream:
    """The host's queue of work: ops run in the order in which they are called."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.priority = priority

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def query(self) -> bool:
        """Whether all work is done: true once it is looked at."""
        materialize_pending()
        return True

    def synchronize(self) -> None:
        """Wait for all work: every deferred storage materializes."""
        materialize_pending()

    def wait_stream(self, stream: Any) -> None:
        """There is one queue."""

    def wait_event(self, event: Any) -> None:
        """There is one queue."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that notes the time now."""
        made = Event() if event is None else event
        made.record(self)
        return made


ExternalStream = Stream


class Event:
    """A moment, for `elapsed_time`; the host's clock."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        """Finish all work, and note the time."""
        materialize_pending()
        self._at = time.perf_counter()

    def query(self) -> bool:
        """Whether the work before it is done: always."""
        return True

    def wait(self, stream: Any = None) -> None:
        """There is one queue."""

    def synchronize(self) -> None:
        """Wait for all work: every deferred storage materializes."""
        materialize_pending()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two recorded events."""
        if self._at is None or end_event._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1000
