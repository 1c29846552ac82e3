"""Attributes of tensors and storages whose setting somebody wants to know of while memory is
recorded: a property in C stands in their place, and calls a function when they are set.

What is set is kept under another name meanwhile, as any attribute is: to write to an instance's
`__dict__` would make it slow for the rest of its life. Who lives at the beginning and at the end is
asked of the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final


class Noted:
    """An attribute `name` in a slot, whose value is `default` in a new instance."""

    def __init__(self, cls: type[Any], name: str, default: Any) -> None:
        self.cls: Final = cls
        self.name: Final = name
        self.default: Final = default
        self.other: Final = f"{name}_noted"
        self.slot: Final = cls.__dict__.get(name)  # None: a base class has it

    def on(self, told: Callable[[Any, Any], None], alive: Iterable[Any]) -> None:
        """Call `told(instance, value)` when the attribute is set; it has to set the other one.
        `alive` are all instances.
        """
        setattr(self.cls, self.other, self.default)
        self._move(self.name, self.other, alive)
        setattr(self.cls, self.name, property(attrgetter(self.other), told))

    def off(self, alive: Iterable[Any]) -> None:
        """Call nothing any more."""
        if self.slot is None:
            delattr(self.cls, self.name)
        else:
            setattr(self.cls, self.name, self.slot)
        self._move(self.other, self.name, alive)

    def _move(self, source: str, target: str, alive: Iterable[Any]) -> None:
        for one in alive:
            value = getattr(one, source)
            if value != getattr(one, target, self):  # a slot may be empty
                setattr(one, target, value)
