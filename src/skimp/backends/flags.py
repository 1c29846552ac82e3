"""Flags that are set for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from skimp._engine.interrupts import region


@region
def using(module: str, **values: Any) -> Iterator[None]:
    """Set attributes of a module inside, those that are not None."""
    flags = vars(sys.modules[module])
    given = {name: value for name, value in values.items() if value is not None}
    before = {name: flags[name] for name in given}
    try:
        flags.update(given)
        yield
    finally:
        flags.update(before)
