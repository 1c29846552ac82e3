"""What a library in C made for an object, destroyed once that is dead: when the next is made.

When the object dies, no code of Python's runs: in a `__del__` what a signal handler raises would be
printed and lost, and what it was about to destroy with it.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final


class _Made(weakref.ref[Any]):
    """What an object has; known until it is destroyed."""

    __slots__ = ("_destroy", "_value")

    def __new__(cls, owner: Any, destroy: Callable[[Any], object], value: Any) -> _Made:
        made = super().__new__(cls, owner, _dead.append)
        made._destroy, made._value = destroy, value
        return made

    def __init__(self, owner: Any, *_: Any) -> None:
        super().__init__(owner, _dead.append)

    def end(self) -> None:
        _known.discard(self)
        self._destroy(self._value)


_known: Final[set[_Made]] = set()
_dead: Final[deque[_Made]] = deque()


def destroy_after(owner: Any, destroy: Callable[[Any], object], value: Any) -> None:
    """Destroy `value`, which belongs to `owner`, when `owner` is dead and another one comes."""
    _known.add(_Made(owner, destroy, value))
    with suppress(IndexError):  # none is left
        while True:
            _dead.popleft().end()
