"""What only expressions that wait keep alive: eager execution would have freed it by now.

Whoever takes a block asks whether there is any (pending.py), and hardly ever there is. So the
storages that waiting expressions read are watched: as long as each has more references than these
expressions hold, which one call of C finds, nobody looks at the expressions themselves.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from itertools import compress
from operator import call, le
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

from skimp._engine.interpreter import HELD_BY_CALL
from skimp._engine.memory.caching import POOLED

if TYPE_CHECKING:
    from skimp._engine.eval.expr import Leaf
    from skimp._engine.memory.storage import Storage

_ONE: Final = HELD_BY_CALL + 1  # references to what one leaf alone holds
_MANY: Final = 256  # that are watched, from which on most may have died
_UNKNOWN: Final = 1 << 62  # more references than anything has


class Watch:
    """Storages, and at most how many references each has if only expressions that wait hold it.

    The second is too high where an expression has ended: then somebody looks who need not have. It
    is never too low. What is noted here is read without a lock, and changes in one step, by who has
    the lock of those that wait.
    """

    __slots__ = ("_many", "_most", "_places", "_refs")

    def __init__(self) -> None:
        self._many = _MANY  # as many: then somebody looks
        self._refs: list[Any] = []  # weak ones
        self._most: list[int] = []
        self._places: dict[int, int] = {}  # in both lists, by id

    def add(self, leaves: Iterable[Leaf]) -> None:
        """An expression waits that has these leaves."""
        refs, most, places = self._refs, self._most, self._places
        for leaf in leaves:
            s: Any = leaf.storage
            if leaf.watched is refs or 0 <= s.nbytes < POOLED:  # a budget may give -1 its bytes
                continue
            ref, key = weakref.ref(s), id(s)
            n = places.get(key, -1)
            if n >= 0 and refs[n] is ref:  # each storage has one
                leaf.watched = refs  # one step with the next line
                most[n] += 1
                continue
            n = len(refs)
            leaf.watched = refs  # one step with the next lines
            refs += (ref,)
            most += (_ONE,)
            places[key] = n

    def sees_one_alone(self) -> bool:
        """Whether a storage may be kept alive by expressions alone of which it is not known."""
        refs, most = self._refs, self._most
        return any(map(le, map(getrefcount, map(call, refs)), most)) or len(refs) > self._many

    def look(self, waiting: Iterable[Storage]) -> set[int]:
        """Begin anew with what these expressions read; the ids of the counted storages that only
        they keep alive.
        """
        new = Watch()
        new.add(_leaves(waiting))
        refs, most, places = new._refs, new._most, new._places
        self._refs = refs  # one step
        self._most = most
        self._places = places
        self._many = max(_MANY, 2 * len(refs))
        found = compress(refs, map(le, map(getrefcount, map(call, refs)), most))
        return {id(s) for ref in found if (s := ref()) is not None and s.nbytes >= POOLED}

    def leave(self, waiting: Iterable[Storage], known: set[int]) -> None:
        """These are kept alive for good reason, which holds as long as no other expression reads
        them: nobody else can get at them.
        """
        most, places = self._most, self._places
        for leaf in _leaves(waiting):
            key = id(leaf.storage)
            if key in known:
                leaf.watched = None
                n = places.pop(key, -1)
                if n >= 0:
                    most[n] = 0

    def stop(self) -> None:
        """Nothing is known until somebody has looked."""
        refs, most, places = [nobody], [_UNKNOWN], dict[int, int]()
        self._refs = refs  # one step
        self._most = most
        self._places = places


watch: Final = Watch()


def nobody() -> None:
    """What a weak reference gives whose storage has died."""


def _leaves(waiting: Iterable[Storage]) -> set[Leaf]:
    """The leaves of their expressions, as many as hold a storage: expressions share them."""
    leaves: set[Leaf] = set()
    for one in waiting:
        expr = one.deferred
        if expr is not None:
            leaves |= expr.leaves
    return leaves
