"""What to say about a name that skimp does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def missing(module_name: str, name: str, candidates: Iterable[str]) -> AttributeError:
    """The error for `module_name.name`; a module's `__getattr__` raises it."""
    hint = nearest(name, candidates)
    message = f"module {module_name!r} has no attribute {name!r}"
    return AttributeError(f"{message}{hint}", name=name)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """`; the nearest is 'x'`, or nothing where nothing is near.

    Names like __file__ are asked for by machines: `inspect.stack` asks every module.
    """
    if name.startswith("__"):
        return ""
    public = [word for word in candidates if not word.startswith("_")]
    found = difflib.get_close_matches(name, public, n=1)
    return f"; the nearest is {found[0]!r}" if found else ""
