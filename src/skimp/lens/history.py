"""PyTorch's functions for memory histories: `_record_memory_history`, `_snapshot`,
`_dump_snapshot`, on a recording.
"""

from __future__ import annotations

from typing import Any

from skimp.lens.recording import Recording, active
from skimp.lens.snapshot import dump, snapshot

_open: list[Recording] = []  # one at most


def _record_memory_history(enabled: str | None = "all", *_: Any, **__: Any) -> None:
    """Record from now on; `None` ends it. Takes PyTorch's other arguments: stacks are always those
    of Python, and what is kept is bounded (docs/notes/lens.md), whatever `max_entries` says.
    """
    if enabled not in (None, "state", "all"):
        raise ValueError(f"expected state or all, got {enabled!r}")
    if enabled is None:
        while _open:
            _open.pop().stop()
    elif not _open:
        made = Recording("history")
        made.start()
        _open.append(made)


def _snapshot(device: Any = None) -> dict[str, Any]:
    """What was recorded, in PyTorch's format. Nothing recorded: an empty history."""
    running = _open or active
    if not running:
        return {
            "segments": [],
            "device_traces": [[]],
            "allocator_settings": {},
            "external_annotations": [],
        }
    return snapshot(running[0].report())


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write it to a file that PyTorch's page memory_viz opens."""
    running = _open or active
    if not running:
        raise RuntimeError("no memory history is recorded: call _record_memory_history() first")
    dump(running[0].report(), filename)
