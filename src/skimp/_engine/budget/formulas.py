"""What a formula of backward works on at once (`Rule(at_once=True)`)."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable
from typing import Any, Final

from skimp._engine.budget import evictable
from skimp._engine.budget.evictable import Evictable
from skimp._engine.interrupts import insist
from skimp.errors import OutOfMemoryError


class Working:
    """A formula that works on several tensors: `gather` before it begins, `end` when it is over.

    What it reads is held until then: it asks for room for its results before it has looked at all
    of that. Where nothing else may go, it may do with some of them after the others. By weak
    references, for a formula asks whether it is the last reader of what it was given.
    """

    def __init__(self) -> None:
        self._held: Final[list[weakref.ref[Evictable]]] = []
        self._given_up: Final[set[int]] = set()
        self._under_way = False

    def gather(self, read: Iterable[Any]) -> None:
        """Make again what is away of the tensors among what the formula is about to read, as
        `evictable.gather` does for ops.
        """
        found = [t._storage for t in read if getattr(t, "_hollow", True) is False]
        held: list[Evictable] = []
        try:
            with contextlib.suppress(OutOfMemoryError):
                evictable.gather(found, held)
            for s in found:
                ref: Any = weakref.ref(s)
                if type(s) is not Evictable or s.needs is not None or ref in self._held:
                    continue
                s.held += 1
                self._held[:0] = (ref,)  # one step with the line above
        finally:
            if held:
                insist(evictable.let_go, held)
        self._under_way = True
        evictable.gathered().append(self)

    def offers(self) -> list[Evictable]:
        """What may go where nothing else may, and was not given up before."""
        found = [ref() for ref in self._held]
        return [s for s in found if s is not None and id(s) not in self._given_up]

    def give_up(self, s: Evictable) -> None:
        """Hold a storage no longer, if it goes: it is made again when the formula looks at it."""
        ref = weakref.ref(s)
        if ref in self._held:
            self._given_up.add(id(s))
            i = self._held.index(ref)
            s.held -= 1
            del self._held[i]  # one step with the line above

    def end(self) -> None:
        """What was held may go. Twice is once."""
        if not (self._under_way or self._held):
            return
        working = evictable.gathered()
        if self in working:
            working.remove(self)
        while self._held:
            s = self._held[0]()
            if s is not None:
                s.held -= 1
            del self._held[0]  # one step with the lines above
