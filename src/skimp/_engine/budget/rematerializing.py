"""Making bytes again: the recipes that it takes, in order, without recursion.

What the order reads and has, and what it makes and will read, is held meanwhile: it may be written
to a file, but not be dropped to be made once more.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import Any

from skimp._engine.budget import recipes
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.recipes import Recipe
from skimp._engine.budget.statistics import counts
from skimp._engine.interrupts import insist
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage

ANY = 1 << 30


def rematerialize(s: Evictable) -> None:
    """Have a storage's bytes by its recipe. Called under the storages' lock.

    RuntimeError: what it needs is lost (which `needs` prevents). OutOfMemoryError: no room.
    """
    assert s.recipe is not None
    try:
        order = list(recipes.upstream(s.recipe[0], ANY))
    except recipes.Lost:
        raise RuntimeError("bytes that were to be made again can't be: a source is lost") from None
    _Order(order).follow(s)


class _Order:
    """Recipes in order; what of all that they read and make is still to be read."""

    def __init__(self, order: list[tuple[Recipe, list[Evictable]]]) -> None:
        self.recipes = [one for one, _ in order]
        self.uses: Counter[tuple[int, int]] = Counter()  # of results
        self.made: dict[tuple[int, int], Storage] = {}  # for whom nobody lives
        self.adopted: dict[tuple[int, int], Evictable] = {}  # the others
        self.held: Counter[Evictable] = Counter()  # times that a storage will be read
        self.holding: dict[Evictable, None] = {}  # those of them that know of it
        # what expressions read that wait for the recipe that reads them
        self.waiting: dict[tuple[int, int], tuple[Recipe, list[Evictable]]] = {}
        for one, there in order:
            self.uses.update([_key(source) for source in one.sources if source.origin is not None])
            self.held.update(there)
        self.there = [there for _, there in order]

    def follow(self, last: Evictable) -> None:
        try:
            for s in self.held:
                self._hold(s)
            for one, there in zip(self.recipes, self.there, strict=True):
                if self._follow_one(one):
                    self.waiting[id(one), 0] = one, there
                else:
                    self._end(one, there)
            if last.block is None:
                raise RuntimeError(
                    f"{self.recipes[-1].name} was made again, but not what was asked for"
                )
        finally:
            insist(self._let_go)

    def _hold(self, s: Evictable) -> None:
        if s not in self.holding:
            s.held += 1
            self.holding[s] = None  # one step with the line above

    def _let_go(self) -> None:
        for s in list(self.holding):
            self._drop(s)

    def _drop(self, s: Evictable) -> None:
        s.held -= 1
        del self.holding[s]  # one step with the line above

    def _release(self, s: Evictable) -> None:
        self.held[s] -= 1
        if not self.held[s] and s in self.holding:
            self._drop(s)

    def _end(self, one: Recipe, there: list[Evictable]) -> None:
        """What a recipe reads, and what waits in it, has been read."""
        ended = [(one, there)]
        while ended:
            one, there = ended.pop()
            for s in there:
                self._release(s)
            for source in one.sources:
                if source.origin is not None:
                    key = _key(source)
                    if key in self.waiting:
                        ended.append(self.waiting.pop(key))
                    self._used(key)

    def _follow_one(self, one: Recipe) -> bool:
        """Make the results; whether the only one is an expression that waits for its reader, as
        nobody else wants it: so it was when it was made first.
        """
        given = [self._given(source) for source in one.sources]
        waits = self.uses[id(one), 0] == 1 and self._who(one, 0) is None
        spent, began = counts.seconds, perf_counter()
        made = one.make(given, waits)
        took = perf_counter() - began - (counts.seconds - spent)
        one.seconds = took if not one.seconds else min(one.seconds, took)
        counts.usual_seconds += one.seconds
        counts.rematerialized(
            one.name, _made_at(one), sum([len(new) for new in made if new is not None]), took
        )
        for i, new in enumerate(made):
            if new is not None:
                self._keep(one, i, new)
        first = made[0]
        return first is not None and first.spare and first.deferred is not None

    def _given(self, source: recipes.Source) -> Storage:
        s = source.storage()
        if s is not None and recipes.has_bytes(s):
            return s
        if source.origin is not None and (found := self.made.get(_key(source))) is not None:
            return found
        if s is not None and s.needs is not None:  # evicted meanwhile, though it was held: by force
            return s
        raise RuntimeError("bytes that were to be made again can't be: a source is lost")

    def _keep(self, one: Recipe, i: int, new: Storage) -> None:
        """Give a result's bytes to the storage that they are of, if it lives and has none."""
        s = self._who(one, i)
        key = (id(one), i)
        if s is not None:
            adopt(s, new)
            if self.uses[key]:
                self._hold(s)
                self.held[s] += self.uses[key]
                self.adopted[key] = s
        elif self.uses[key]:
            self.made[key] = new

    def _who(self, one: Recipe, i: int) -> Evictable | None:
        """Who lives and has no bytes because of this."""
        ref = one.results[i] if i < len(one.results) else None
        s = None if ref is None else ref()
        mine = s is not None and s.recipe is not None and s.recipe[0] is one
        return s if mine and s is not None and s.needs is not None else None

    def _used(self, key: tuple[int, int]) -> None:
        self.uses[key] -= 1
        if (s := self.adopted.get(key)) is not None:
            self._release(s)
        if not self.uses[key]:
            self.made.pop(key, None)


def _made_at(one: Recipe) -> Site | None:
    """The line that called the op, as far as somebody has a result of it."""
    for ref in one.results:
        s = None if ref is None else ref()
        if s is not None and s.made_at is not None:
            return s.made_at
    return None


def _key(source: recipes.Source) -> tuple[int, int]:
    assert source.origin is not None
    return id(source.origin[0]), source.origin[1]


def adopt(s: Evictable, new: Storage) -> None:
    """Give `s` the block of a storage that nobody else has."""
    if host.budget is not None:
        host.budget.regain(s)
    flat = new.flat()  # materializes
    if flat.nbytes != len(s):
        raise RuntimeError(f"{flat.nbytes} bytes were made again where there were {len(s)}")
    del flat
    block: Any = new.block
    nbytes = new.nbytes
    s.block = block
    s.nbytes = nbytes
    s.needs = None
    s.used = perf_counter()  # what was made on the way is wanted about as soon
    new.block = None
    new.nbytes = -1  # one step with the lines above
    if host.watched:
        host.handed(nbytes, id(new), s)
