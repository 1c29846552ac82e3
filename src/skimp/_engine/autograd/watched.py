"""Who wants to know which node of a backward runs. Nobody: then nothing is asked but one list.

Anomaly mode has its name in the same list, so that backward asks one thing for both.
"""

from __future__ import annotations

from typing import Any, Protocol

ON: list[Any] = []  # observers, and anomaly mode's name while it is on
OBSERVERS: list[Observer] = []


class Observer(Protocol):
    """Is told on the thread on which a backward runs. `keep`: nodes keep what they saved."""

    def backward_begins(self) -> None: ...
    def backward_ends(self) -> None: ...
    def node_begins(self, node: Any, keep: bool) -> None: ...
    def node_ends(self, node: Any) -> None: ...


def observe(observer: Observer) -> None:
    """Tell `observer` of every backward from now on."""
    OBSERVERS.append(observer)
    ON.append(observer)


def unobserve(observer: Observer) -> None:
    """Tell it no longer."""
    OBSERVERS.remove(observer)
    ON.remove(observer)
