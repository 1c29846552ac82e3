"""Calls and attributes of modules by the slots of their classes (`slots.h`); Python alone has its
own slots for them.
"""

from __future__ import annotations

from typing import Any

import cython


def prepare(call: Any, attribute: Any, shared: tuple[dict[Any, Any], ...]) -> Any:
    """What C stands for: the functions `__call__` and `__getattr__` of modules, and the hooks of
    all modules, which it calls in Python if there are any."""
    if cython.compiled:
        slots_prepare(call, attribute, shared)  # type: ignore # noqa: F821


def fill(kind: type) -> Any:
    """Have C call modules of the class and find their attributes, if its `__call__` and
    `__getattr__` are those that it stands for."""
    if cython.compiled:
        slots_fill(kind)  # type: ignore # noqa: F821
