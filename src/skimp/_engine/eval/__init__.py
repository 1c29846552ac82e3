"""Deferred pointwise work: expressions, the plans that are made of them, and how plans run.

`skimp._engine.eval.show(tensor)` tells what a tensor's expression will do.
"""

from typing import Any

from skimp._engine.eval.show import show as _show


def show(what: Any) -> str:
    """The plan behind a tensor's expression (or behind an expression), as text; nothing is
    materialized.
    """
    storage = getattr(what, "_storage", None)
    if storage is None:
        return _show(what)
    if storage.deferred is None:
        return "resident: nothing is left to compute"
    return _show(storage.deferred)


__all__ = ["show"]
