"""Attributes of tensors and storages whose setting somebody wants to know of while memory is
recorded: a property stands in place of their slot, and calls a function when they are set.

What is set is in the slot all the while, so nothing has to be moved, nor looked for, when it begins
and ends, whatever other threads make meanwhile; and C, which fills new instances, tells nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final


class Noted:
    """An attribute `name` in a slot of a class, or of one of its bases."""

    def __init__(self, cls: type[Any], name: str) -> None:
        self._cls: Final = cls
        self._name: Final = name
        self._slot: Final = getattr(cls, name)
        self._inherited: Final = name not in cls.__dict__
        self.get: Final = self._slot.__get__
        self.put: Final = self._slot.__set__

    def on(self, told: Callable[[Any, Any], None]) -> None:
        """Call `told(instance, value)` when the attribute is set; it has to `put` the value."""
        setattr(self._cls, self._name, property(self.get, told))

    def off(self) -> None:
        """Call nothing any more."""
        if self._inherited:
            delattr(self._cls, self._name)
        else:
            setattr(self._cls, self._name, self._slot)
