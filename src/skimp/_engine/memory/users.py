"""Who lives, and who looks at a storage: asked of the collector, for nobody keeps a list."""

from __future__ import annotations

import gc
from sys import getrefcount
from typing import Any

from skimp._engine.interpreter import HELD_BY_VARIABLE
from skimp._engine.tensor.fields import Held


def alive(*classes: type[Any]) -> list[Any]:
    """All instances of some classes and of those that are made of them, which refer to their class.

    `gc.get_objects` also gives tuples that another thread is still filling from a generator, and
    whoever has one then breaks them: "bad argument to internal function" on that thread.
    """
    known = dict.fromkeys(classes)
    new = list(classes)
    while new:
        new = [one for cls in new for one in type.__subclasses__(cls)]
        known |= dict.fromkeys(new)
    # by its type: what has a `__class__` of its own may do anything when asked for it
    found = [one for one in gc.get_referrers(*known) if issubclass(type(one), classes)]
    return [one for one in found if _is_made(one)]


def _is_made(one: Any) -> bool:
    """Whether an instance has what all of its class have: another thread may be making it."""
    last = getattr(type(one), "_skimp_last", None)
    return last is None or hasattr(one, last)


def users(s: Any) -> list[Any]:
    """The live tensors on this storage, found by asking the garbage collector who refers to it."""
    found = [one for one in gc.get_referrers(s) if isinstance(one, Held)]
    return [t for t in found if getattr(t, "_storage", None) is s]


def users_beside(t: Any) -> list[Any]:
    """The live tensors on a tensor's storage: itself alone where nothing else refers to that, for
    the collector looks through all objects of the program.
    """
    s = t._storage
    return [t] if getrefcount(s) == HELD_BY_VARIABLE + 1 else users(s)
