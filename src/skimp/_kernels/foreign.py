"""What a library in C made for an object, destroyed once that is dead: when the next is made.

When the object dies, no code of Python's runs: in a `__del__` what a signal handler raises would be
printed and lost, and what it was about to destroy with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import KeyedRef

_Made = KeyedRef[tuple[Callable[[Any], object], Any], Any]  # what destroys, and what

_known: Final[set[_Made]] = set()  # until they are destroyed
_dead: Final[deque[_Made]] = deque()


def destroy_after(owner: Any, destroy: Callable[[Any], object], value: Any) -> None:
    """Destroy `value`, which belongs to `owner`, when `owner` is dead and another one comes."""
    _known.add(KeyedRef(owner, _dead.append, (destroy, value)))
    with suppress(IndexError):  # none is left
        while True:
            made = _dead.popleft()
            _known.discard(made)
            destroy, value = made.key
            destroy(value)
