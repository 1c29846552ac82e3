"""An expression while it is computed."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from skimp._engine.budget.statistics import counts
from skimp._engine.interrupts import finalizer


class Computing:
    """An expression that is being computed: its leaves' arrays, which pin their bytes, and since
    when. Its recipe knows the time when this is gone.
    """

    __slots__ = ("_began", "_spent", "arrays", "recipe")

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays
        self.recipe: Any = None
        self._spent = counts.seconds
        self._began = perf_counter()

    @finalizer
    def __del__(self) -> None:
        recipe = getattr(self, "recipe", None)  # none where its making was interrupted
        if recipe is not None:
            took = perf_counter() - self._began - (counts.seconds - self._spent)
            recipe[0].taken(took)
