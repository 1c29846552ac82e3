"""Who looks at a storage: asked of the garbage collector, for nobody keeps a list."""

from __future__ import annotations

import gc
from sys import getrefcount
from typing import Any

from skimp._engine.interpreter import HELD_BY_VARIABLE
from skimp._engine.tensor.fields import whole


def users(s: Any) -> list[Any]:
    """The live tensors on this storage, found by asking the garbage collector who refers to it."""
    found: list[Any] = []
    for holder in gc.get_referrers(s):
        if isinstance(holder, dict) and holder.get("_storage") is s:
            found.extend(o for o in gc.get_referrers(holder) if whole(o) is holder)
        elif getattr(holder, "_storage", None) is s:
            found.append(holder)
    return [
        t for t in found if hasattr(t, "_skimp_layout_of")
    ]  # not what Python shows of a storage


def users_beside(t: Any) -> list[Any]:
    """The live tensors on a tensor's storage: itself alone where nothing else refers to that, for
    the collector looks through all objects of the program.
    """
    s = t._storage
    return [t] if getrefcount(s) == HELD_BY_VARIABLE + 1 else users(s)
