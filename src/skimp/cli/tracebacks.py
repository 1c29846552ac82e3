"""Tracebacks as the program's author knows them: without the frames of what runs it."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

from skimp._engine.memory.call_site import OWN_CODE

RUNPY = "<frozen runpy>"


def print_without_our_frames(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """For `sys.excepthook`."""
    shown = traceback.TracebackException(kind, error, trace, compact=True)
    _strip(shown)
    print("".join(shown.format()), end="", file=sys.stderr)


def _strip(shown: traceback.TracebackException) -> None:
    """Drop our frames from an exception, its causes and, for a group, its members."""
    kept = [frame for frame in shown.stack if not _is_ours(frame.filename)]
    # Without frames there is no heading either, as Python has it for a syntax error in the script.
    shown.stack = traceback.StackSummary.from_list(kept) if kept else None  # type: ignore[assignment]
    for other in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        if other is not None:
            _strip(other)


def _is_ours(filename: str) -> bool:
    return filename.startswith(OWN_CODE) or filename == RUNPY
