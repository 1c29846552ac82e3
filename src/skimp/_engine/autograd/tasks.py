"""The backward that a thread is in, and what is to be done when it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from skimp._engine.autograd.leaves import reached
from skimp._engine.autograd.nodes import Node


class _Running(threading.local):
    # its number, the nodes where it begins, those that it wants if it does not want all
    now: tuple[int | None, list[Node], set[Node] | None] = (None, [], None)


running: Final = _Running()
AFTERWARDS: Final[list[Callable[[], None]]] = []


def current_task() -> int | None:
    """Its number, if there is one."""
    return running.now[0]


def accumulates() -> bool:
    """Whether it reaches all leaves."""
    return running.now[2] is None


def coming_by(nodes: Sequence[Node | None]) -> int:
    """How many of these it comes by, or has come by."""
    _, roots, wanted = running.now
    run = reached(roots) if wanted is None else wanted
    return sum([node in run for node in nodes])


def queue_callback(callback: Callable[[], None]) -> None:
    """Call it when the outermost backward that runs now is over, without an error.

    Raises: RuntimeError outside of a backward.
    """
    if current_task() is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    AFTERWARDS.append(callback)


def call_afterwards() -> None:
    """Call what was queued."""
    while AFTERWARDS:
        AFTERWARDS.pop(0)()
