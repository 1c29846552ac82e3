"""Flags that are set for a while."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def using(module: str, **values: Any) -> Iterator[None]:
    """Set attributes of a module inside, those that are not None."""
    found = sys.modules[module]
    given = {name: value for name, value in values.items() if value is not None}
    before = {name: getattr(found, name) for name in given}
    vars(found).update(given)
    try:
        yield
    finally:
        vars(found).update(before)
