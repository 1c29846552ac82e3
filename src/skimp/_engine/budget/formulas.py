"""What a formula of backward works on at once (`Rule(at_once=True)`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from skimp._engine.budget import evictable
from skimp._engine.budget.evictable import Evictable
from skimp._engine.interrupts import insist
from skimp.errors import OutOfMemoryError


def gather(budget: Any, read: Iterable[Any]) -> None:
    """Make again what is away of the tensors among what a formula is about to read, as
    `evictable.gather` does for ops. Where these have no room beside each other, it may do with some
    of them after the others. No formula is under way: noting begins here, if it is due.
    """
    if budget.notes_soon:
        budget.begins_to_note()
    held: list[Evictable] = []
    try:
        with contextlib.suppress(OutOfMemoryError):
            evictable.gather([t._storage for t in read if _has_bytes(t)], held)
    finally:
        if held:
            insist(evictable.let_go, held)


def _has_bytes(t: Any) -> bool:
    return getattr(t, "_hollow", True) is False
