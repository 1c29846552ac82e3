"""Where a step of a program ends, for whoever keeps figures by step."""

from __future__ import annotations

from collections.abc import Callable

LISTENERS: list[Callable[[], None]] = []


def step() -> None:
    """A step of the program ends here: reports have figures by step. An optimizer's `step` says so
    by itself; a program that calls this one says it alone. Costs nothing while nothing is recorded.
    """
    for told in tuple(LISTENERS):
        told()
