"""What is told once in a process, told anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skimp._engine.memory import call_site


@contextmanager
def told_anew() -> Iterator[None]:
    """Inside, nothing has been told yet; what had been is told no more afterwards."""
    before = set(call_site.told)
    call_site.told.clear()
    try:
        yield
    finally:
        call_site.told.update(before)
