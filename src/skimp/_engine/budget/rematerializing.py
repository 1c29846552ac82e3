"""Making bytes again: the recipes that it takes, in order, without recursion.

What the order reads and has, and what it makes and will read, is held meanwhile: it may be written
to a file, but not be dropped to be made once more. Where room lacks and nothing else may go, an
order gives up what it holds, but for what is read now (`gives_up`), and each of it once: what is
dropped then is made again when its reader comes, for which the order is planned anew.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final

from skimp._engine.autograd.modes import state
from skimp._engine.budget import evictable, recipes
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.filling import here
from skimp._engine.budget.recipes import Recipe
from skimp._engine.budget.statistics import counts
from skimp._engine.dispatch.transforms import straight
from skimp._engine.interpreter import HELD_BY_ARGUMENT
from skimp._engine.interrupts import insist
from skimp._engine.memory import call_site
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp.errors import OutOfMemoryError

ANY: Final = 1 << 30
Key = tuple[int, int]  # a recipe, and which of its results

_orders: Final[list[_Order]] = []  # that are followed, under the storages' lock


def rematerialize(s: Evictable) -> None:
    """Have a storage's bytes by its recipe. Called under the storages' lock.

    RuntimeError: what it needs is lost (which `needs` prevents). OutOfMemoryError: no room.
    """
    assert s.recipe is not None
    recipe: Recipe = s.recipe[0]
    read = recipes.present(recipe)
    grad, direct, inside, site = state.grad, straight.now, here.inside, here.site
    line = site or call_site.find()  # of all that is made on the way
    try:  # nothing is recorded, and no transform concerns what is made again
        state.grad, straight.now, here.inside, here.site = False, True, True, line
        if read is None or not _follow_alone(recipe, read):
            _Order(recipe).follow()
    finally:
        state.grad, straight.now, here.inside, here.site = grad, direct, inside, site
    if s.block is None:
        raise RuntimeError(f"{recipe.name} was made again, but not what was asked for")


def _follow_alone(one: Recipe, read: list[Evictable]) -> bool:
    """An order of one recipe, which has all that it reads: what it holds is read now, so there is
    nothing to give up. False: it was written to meanwhile.
    """
    held: list[Evictable] = []
    try:
        for s in read:
            s.held += 1
            held[:0] = (s,)  # one step with the line above, as a call would not be
        made = _made(one, read, waits=False)
        if _written_to(one, held):
            return False
        for i, new in enumerate(made):
            owner = None if new is None else _who(one, i)
            if new is None or owner is None:
                continue
            adopt(owner, new)
    finally:
        insist(evictable.let_go, held)
    return True


def _written_to(one: Recipe, read: list[Evictable]) -> bool:
    """Whether another thread has begun to write to what was read. It waits for those whose bytes
    went because of these, not for what went because of others, and finds them there again.
    """
    for source in one.sources:
        s = source.ref()
        if s is not None and s.writes != source.writes and s in read:
            return True
    return False


def _made(one: Recipe, given: list[Any], waits: bool) -> list[Storage | None]:
    """What a recipe makes of what it reads, and the time that this took, noted."""
    spent, began = counts.seconds, perf_counter()
    made = one.make(given, waits)
    took = perf_counter() - began - (counts.seconds - spent)
    one.seconds = took if not one.seconds else min(one.seconds, took)
    counts.usual_seconds += one.seconds
    nbytes = 0
    for new in made:
        if new is not None:
            nbytes += len(new) if new.size is None else new.size
    counts.rematerialized(one.name, one.site, nbytes, took)
    return made


def _who(one: Recipe, i: int) -> Evictable | None:
    """Who lives and has no bytes because of this."""
    ref = one.results[i] if i < len(one.results) else None
    s = None if ref is None else ref()
    mine = s is not None and s.recipe is not None and s.recipe[0] is one
    return s if mine and s is not None and s.needs is not None else None


def gives_up() -> bool:
    """Have expressions that wait be computed over what they alone have, so that what else they read
    may go; or one thing that is held go, or be allowed to, that costs least to have again for what
    it gives. False: all is read now, or was given up once. Called under the storages' lock.
    """
    if not all([order.gives for order in _orders]):
        return False
    if any([order.settle() for order in _orders]):
        return True
    readers: list[evictable.Reader] = [*_orders, *evictable.gathered()]
    offers = Counter([s for one in readers for s in one.offers()])
    found: list[tuple[float, int, Any, Any]] = []
    for s, times in offers.items():
        if times == s.held and s.block is not None and s.recipe is not None:
            seconds = recipes.price(s.recipe[0])
            if seconds is not None:
                found.append((seconds / s.nbytes, id(s), None, s))
    for order in _orders:
        found += [(cost, id(order), order, key) for key, cost in order.spares()]
    if not found:
        return False
    _, _, order, which = min(found, key=lambda one: one[:2])
    if order is not None:
        order.forget(which)
    else:
        for one in readers:
            one.give_up(which)
    return True


class _Order:
    """The recipes that make a storage's bytes again; what of all that they read is still to be
    read.
    """

    def __init__(self, last: Recipe) -> None:
        self.last: Final = last
        self.todo: list[tuple[Recipe, list[Evictable], list[Key]]] = []  # the next one last
        self.uses: dict[Key, int] = {}  # of results for whom nobody lives
        self.made: dict[Key, tuple[Storage, Recipe]] = {}  # those that there are
        self.held: dict[Evictable, int] = {}  # times that a storage will be read
        self.holding: dict[Evictable, None] = {}  # those of them that know of it
        # what expressions read that wait for the recipe that reads them
        self.waiting: dict[Key, list[Evictable]] = {}
        self.asked: dict[Key, weakref.ref[Storage]] = {}  # those that are read now
        self.reading: list[Evictable] = []  # by what is made now
        self.given_up: set[object] = set()  # what was, once
        self.kept: list[Evictable] = []  # from which that can be made again
        self.stale = True  # what was to be read is away: this has to be planned anew
        self.mates: set[int] = set()  # recipes whose results nobody asked for
        self.gives = True  # what it holds, where nothing else may go

    def follow(self) -> None:
        try:
            _orders.append(self)
            self._follow_all()
        finally:
            insist(self._end)

    def _follow_all(self) -> None:
        while self.stale or self.todo:
            if self.stale:
                self._plan()
            one, living, dead = self.todo.pop()
            if id(one) not in self.mates:
                self._follow_one(one, living, dead)
            else:
                self._follow_mate(one, living, dead)

    def _plan(self) -> None:
        """What has to be followed, as things are."""
        try:
            order = list(recipes.upstream(self.last, ANY, self.made))
        except recipes.Lost:
            raise RuntimeError(
                "bytes that were to be made again can't be: a source is lost"
            ) from None
        self.stale = False
        todo: list[tuple[Recipe, list[Evictable], list[Key]]] = []
        uses: dict[Key, int] = {}
        held: dict[Evictable, int] = {}
        for one in self._with_mates([one for one, _ in order]):
            living, dead = _reads(one)
            todo[:0] = ((one, living, dead),)
            for key in dead:
                uses[key] = uses.get(key, 0) + 1
            for s in living:
                held[s] = held.get(s, 0) + 1
        for key in list(self.made):
            if key not in uses:
                self.made.pop(key)
                self.waiting.pop(key, None)
        for living in self.waiting.values():
            for s in living:
                held[s] = held.get(s, 0) + 1
        self.uses, self.held = uses, held
        for s in list(self.holding):
            if s not in held:
                self._drop(s)
        for s in held:
            if recipes.has_bytes(s):
                self._hold(s)
        self.todo = todo

    def _with_mates(self, order: list[Recipe]) -> list[Recipe]:
        """The same, and after what nobody has the recipes of all that is away and is made of it, so
        that it is not made for each of them once more.
        """
        known = {id(one) for one in order}
        found: list[Recipe] = []
        self.mates = set()
        for one in order:
            found.append(one)
            if one is not self.last and one.is_shared():
                for s in one.read_by():
                    mate = s.recipe[0]
                    if s.needs is not None and id(mate) not in known and _reads_only(mate, one):
                        known.add(id(mate))
                        self.mates.add(id(mate))
                        found.append(mate)
        return found

    def _hold(self, s: Evictable) -> None:
        if s not in self.holding:
            s.held += 1
            self.holding[s] = None  # one step with the line above

    def _drop(self, s: Evictable) -> None:
        s.held -= 1
        del self.holding[s]  # one step with the line above

    def _release(self, read: list[Evictable]) -> None:
        """These were read once more."""
        held = self.held
        for s in read:
            left = held[s] = held.get(s, 0) - 1
            if not left and s in self.holding:
                self._drop(s)

    def _end(self) -> None:
        for s in list(self.holding):
            self._drop(s)
        if self in _orders:
            _orders.remove(self)

    # -- giving up --------------------------------------------------------------------------------

    def settle(self) -> bool:
        """Compute an expression that waits, if that takes no room and lets go of what it reads."""
        for key, living in list(self.waiting.items()):
            s = self.made[key][0] if key in self.made else None  # None: it is read now
            if s is None or not living or s.deferred is None or s.donor(s.deferred) is None:
                continue
            del self.waiting[key]  # first: to make room for scratch may come here
            try:
                s.materialize()
            except OutOfMemoryError:
                self.waiting[key] = living
                continue
            self._release(living)
            return True
        return False

    def offers(self) -> list[Evictable]:
        """What may go, and was not given up before: of what an expression reads, what is read by
        nobody once it is computed.
        """
        waiting = [living for key, living in self.waiting.items() if not self._is_computed(key)]
        busy = {id(s) for living in (self.reading, *waiting) for s in living}
        return [s for s in self.holding if id(s) not in busy and id(s) not in self.given_up]

    def _is_computed(self, key: Key) -> bool:
        """Whether an expression that the recipe reads that is followed now has its bytes."""
        ref = self.asked.get(key)
        s = None if ref is None else ref()
        return s is not None and s.deferred is None

    def give_up(self, s: Evictable) -> None:
        """Hold a storage no longer, if it goes: until the next recipe."""
        if s in self.holding:
            self.given_up.add(id(s))
            self.stale = True
            self._drop(s)

    def spares(self) -> Iterator[tuple[Key, float]]:
        """The results that nobody reads now but this, and seconds a byte to make them once more."""
        for key, (s, one) in list(self.made.items()):
            idle = s.block is not None and key not in self.given_up and _is_alone(s)
            if idle and (found := self._way(key, one)) is not None:
                yield key, sum([other.seconds for other, _ in found]) / max(s.nbytes, 1)

    def _way(self, key: Key, one: Recipe) -> list[tuple[Recipe, list[Evictable]]] | None:
        try:
            others = {other: True for other in self.made if other[0] != key[0]}
            return list(recipes.upstream(one, recipes.MOST, others))
        except recipes.Lost:
            return None

    def forget(self, key: Key) -> None:
        """Let go of a result, which will be made once more."""
        way = self._way(key, self.made[key][1])
        self.given_up.add(key)
        if way is not None:
            self.kept += [s for _, there in way for s in there]
            self.stale = True
            del self.made[key]

    # -- following --------------------------------------------------------------------------------

    def _follow_one(self, one: Recipe, living: list[Evictable], dead: list[Key]) -> None:
        """Make the results, and hold what is read of them. The only one may be an expression that
        waits for its reader, as nobody else wants it: so it was when it was made first.
        """
        self.reading = living
        waits = self.uses.get((id(one), 0)) == 1 and _who(one, 0) is None
        given = None if _written_to(one, living) else self._given(one, dead)
        made = None if given is None else _made(one, given, waits)
        if made is None or _written_to(one, living):
            self._read_otherwise(dead)
            return
        for i, new in enumerate(made):
            if new is not None:
                self._keep(one, i, new)
        self.reading = []
        if one is self.last:
            self.stale = False  # nobody reads what was given up for it
        read = living
        for key in dead:
            read = [*read, *self.waiting.pop(key, ())]
        first = made[0]
        if first is not None and first.spare and first.deferred is not None:
            self.waiting[id(one), 0] = read
        else:
            self._release(read)

    def _read_otherwise(self, dead: list[Key]) -> None:
        """What was there and is written to has to be made as well; and what was read last."""
        self.reading = []
        self.stale = True
        for key in dead:
            if key not in self.made:
                self.waiting.pop(key, None)

    def _follow_mate(self, one: Recipe, living: list[Evictable], dead: list[Key]) -> None:
        """Make what nobody asked for, if there is room for it beside what is held."""
        try:
            self.gives = False
            self._follow_one(one, living, dead)
        except OutOfMemoryError:
            self._release(living)
        finally:
            self.gives = True

    def _given(self, one: Recipe, dead: list[Key]) -> list[Storage] | None:
        """What a recipe reads. What it reads last, nobody else holds from here on: its block may be
        taken over, as it was at first. None: another thread has begun to write to some of it.
        """
        self.asked = {}
        given: list[Storage] = []
        for source in one.sources:
            s: Any = source.ref()
            if s is None or s.writes != source.writes or not recipes.has_bytes(s):
                s = self._source(source)
                if s is None:
                    return None
            given.append(s)
        for key in dead:
            self.uses[key] -= 1
            if not self.uses[key] and (found := self.made.pop(key, None)) is not None:
                self.asked[key] = weakref.ref(found[0])
        return given

    def _source(self, source: recipes.Source) -> Storage | None:
        """What was made in place of a source that is no more, or is away; None: others' bytes."""
        if source.origin is not None and (found := self.made.get(_key(source))) is not None:
            return found[0]
        s = source.storage()
        if s is not None and (s.needs is not None or recipes.has_bytes(s)):
            return s  # evicted meanwhile, though it was held: by force
        if s is None and source.ref() in self.reading:  # others' bytes by now
            return None
        raise RuntimeError("bytes that were to be made again can't be: a source is lost")

    def _keep(self, one: Recipe, i: int, new: Storage) -> None:
        """Give a result's bytes to the storage that they are of, if it lives and has none."""
        s = _who(one, i)
        if s is not None:
            adopt(s, new)
            if self.held.get(s):
                self._hold(s)
        elif self.uses.get((id(one), i)):
            self.made[id(one), i] = new, one


def _is_alone(s: Storage) -> bool:
    """Whether nobody but an order has a result of a recipe."""
    return sys.getrefcount(s) <= HELD_BY_ARGUMENT + 1


def _reads_only(one: Recipe, dead: Recipe) -> bool:
    """Whether a recipe reads results of a dead one, and else what is there."""
    for source in one.sources:
        s = source.storage()
        if s is None:
            if source.origin is None or source.origin[0] is not dead:
                return False
        elif not recipes.has_bytes(s):
            return False
    return True


def _reads(one: Recipe) -> tuple[list[Evictable], list[Key]]:
    """The storages that a recipe reads; and of those that are no more, whose results they were."""
    living: list[Evictable] = []
    dead: list[Key] = []
    for source in one.sources:
        s = source.ref()
        if s is not None and s.writes == source.writes:
            living.append(s)
        elif source.origin is not None:
            dead.append(_key(source))
    return living, dead


def _key(source: recipes.Source) -> tuple[int, int]:
    assert source.origin is not None
    return id(source.origin[0]), source.origin[1]


def adopt(s: Evictable, new: Storage) -> None:
    """Give `s` the block of a storage that nobody else has."""
    if host.budget is not None:
        host.budget.regain(s)
    flat = new.flat()  # materializes
    if s.block is not None:  # what was computed on the way has read it
        return
    if flat.nbytes != s.size:
        raise RuntimeError(f"{flat.nbytes} bytes were made again where there were {s.size}")
    del flat
    s.used = perf_counter()  # what was made on the way is wanted about as soon
    block: Any = new.block
    nbytes = new.nbytes
    s.block = block
    s.nbytes = nbytes
    s.needs = None
    new.block = None
    new.nbytes = -1  # one step with the lines above
    if host.watched:
        host.handed(nbytes, id(new), s)
