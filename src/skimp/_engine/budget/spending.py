"""Who makes room where a program has as many bytes reserved as it may."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from time import perf_counter
from typing import Any, Final

from skimp._engine.budget import (
    choice,
    evictable,
    formulas,
    lending,
    recipes,
    rematerializing,
    spill as files,
    telling,
)
from skimp._engine.budget.computing import Computing
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.filling import here
from skimp._engine.budget.quick import on_small
from skimp._engine.budget.recipes import Recipe
from skimp._engine.budget.statistics import counts
from skimp._engine.budget.waking import Waking
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.memory import call_site
from skimp._engine.memory.caching import POOLED, pool
from skimp._engine.memory.ledger import KEPT, SMALL, host
from skimp._engine.memory.pending import LOCK
from skimp._kernels import scratch
from skimp.errors import OutOfMemoryError

FEW: Final = 3  # tensors that any op may read at once
SHARE: Final = 8  # of the budget that a deferred expression of more may read
AGED: Final = 0.5  # of the time that something was not used, for which what goes with it was not


class Spending(Waking):
    """A budget that is obeyed.

    `always`: whatever may go, goes at every allocation, though there is room: a test's way to meet
    everything in every state.
    """

    def __init__(
        self,
        nbytes: int,
        spills: bool = True,
        directory: str | None = None,
        always: bool = False,
        least: int | None = None,
    ) -> None:
        super().__init__(nbytes, spills, always, least)
        self.directory: Final = directory
        self.verifies = False  # checksums are compared
        self.highest = 0  # bytes since an op began that is noted
        self.error: OSError | None = None  # why nothing is spilled now

    def working(self, read: Iterable[Any]) -> formulas.Working | None:
        """What holds what a formula of backward is about to read; None: nothing of it has to be.
        No formula is under way: noting begins here, if it is due.
        """
        if self.notes_soon:
            self.begins_to_note()
        for t in read:
            if getattr(t, "_hollow", True) is False and type(t._storage) is Evictable:
                return formulas.Working()
        return None

    @property
    def kept_below(self) -> int:
        """Bytes of a result whose tensor keeps an ndarray, which pins them."""
        if self.knows or counts.bringing:
            return min(self._lowest(), SMALL)
        return SMALL if self.repetition.smaller else KEPT

    def _lowest(self) -> int:
        """Bytes from which storages are known now: of what is made again, as when it was noted."""
        return self.smallest if counts.bringing else self.least

    def receive(self, nbytes: int, owner: Any) -> None:
        """Know an owner of `nbytes`, which are about to be charged."""
        held = host.total - host.freed + nbytes
        if self.notes and held > self.highest:
            self.highest = held
        back = counts.bringing > 0
        if nbytes >= POOLED and not back:
            self.calm.seen += nbytes
            if self.calm.on:
                self._near(held)
            if nbytes >= KEPT:
                if owner.deferred is None:
                    self._large(nbytes, owner)
                else:
                    self.repetition.sees(held)
            elif owner.deferred is None and (self.knows or self.repetition.smaller):
                self.repetition.place(owner)
        if nbytes < (self.smallest if back else self.least):
            return
        if self.knows or back:
            self._know(owner, here.site)
        else:
            owner.made_at = call_site.find()
        if self.always:
            self._evict_all()

    def computes(self, owner: Any) -> object:
        """Know an expression that is about to be computed, how that is done and what it reads."""
        arrays = evictable.leaf_arrays(owner)
        back = counts.bringing > 0
        if (
            not (self.knows or back)
            or owner.size < self._lowest()
            or owner.deferred is None  # what was made of what it reads has read it
            or not self._know(owner, here.site)
        ):
            return arrays
        computing = Computing(arrays)
        if self.notes:
            leaves = owner.deferred.leaves
            needed = sum(_sizes(leaves).values()) + len(owner)
            if needed > telling.floor.nbytes:
                telling.floor.see(needed, {leaf.storage for leaf in leaves}, host.allocated)
        if self.notes and owner.recipe is None and not (back and owner.spare):
            recipes.of_expression(owner, owner.deferred)
        owner.settled = True
        computing.recipe = owner.recipe
        return computing

    def made_again(self, owner: Any, expr: Any) -> None:
        """Know bytes that stood for a result, which is gone, and the expression that they are."""
        if self.notes and not counts.bringing and owner.size >= self.least and self._know(owner):
            recipes.of_expression(owner, expr)
            owner.settled = True

    def regain(self, owner: Any) -> None:
        """Know an owner that has bytes again, which somebody else had allocated."""
        if len(owner) >= self.smallest:
            self._know(owner)

    def deferring(self, owner: Any) -> None:
        """Know a new expression. One that reads so much that it had better not wait is computed,
        if there is room: later it may take over the block of what only it still has.
        """
        if self.notes:
            evictable.enrol(owner)
        nbytes = owner.size
        if nbytes >= POOLED and not counts.bringing:
            if nbytes >= KEPT:
                self._large(-nbytes, owner)
            elif self.knows or self.repetition.smaller:
                self.repetition.place(owner)
        leaves = owner.deferred.leaves
        if len(leaves) <= FEW or owner.spare:  # what it reads is kept anyway
            return
        nbytes = sum(_sizes(leaves).values())
        if nbytes > self.nbytes // SHARE:
            with contextlib.suppress(OutOfMemoryError):
                _read = evictable.leaf_arrays(owner)
                if self.make_room(pool.rounded(len(owner))):
                    owner.materialize()

    def quick(self, row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...]) -> Any:
        """A pointwise row on small tensors, whose arrays may have to be lent; None: not for these,
        or it was tried, as a call that is noted.
        """
        return None if here.inside else on_small(row, args, params)

    def explain(self, nbytes: int) -> str:
        """Why so many bytes can't be had within the budget."""
        return telling.refusal(nbytes, self.nbytes, self.spills, self.error, self.known)

    def make_room(self, nbytes: int) -> bool:
        """Evict until `nbytes` more are within the ledger's bound; whether they are."""
        if host.fits(nbytes):
            return True
        began, before = perf_counter(), counts.seconds
        try:
            with LOCK(), lending.ROOM():
                return self._make_room(nbytes)
        finally:
            counts.seconds = before + perf_counter() - began
            self.clock.look(self.gone, nbytes if host.fits(nbytes) else 0)

    def _make_room(self, nbytes: int) -> bool:
        if scratch.drop() and host.fits(nbytes):
            return True
        self._write_again()
        tried: set[int] = set()
        while not host.fits(nbytes):
            s = self.repetition.next_to_go()
            if s is None and self.spills:
                s = self.repetition.ahead(tried)
            if s is not None:
                if (self.spills or type(s) is Evictable) and not (self._know(s) and self._evict(s)):
                    tried.add(id(s))
                continue
            began = perf_counter()
            lacking = host.reserved_for(nbytes) - (host.bound or 0)
            period = self.repetition.repeating()
            found = choice.choose(self.known, tried, self.spills, period, lacking)
            counts.search_seconds += perf_counter() - began
            if not found:
                if self._wake():
                    if self.spills and not self.repetition.learns():
                        self.repetition.depart()  # what went then was not enough
                    tried.clear()
                elif not rematerializing.gives_up():
                    return False
                continue
            self._evict_some(found, nbytes, tried)
        return True

    def _evict_some(self, found: list[Evictable], nbytes: int, tried: set[int]) -> None:
        while found and not host.fits(nbytes):
            s = found.pop()
            if not self._evict(s):
                tried.add(id(s))
            elif self.spills:
                self.repetition.learn(s, len(s))

    def _evict_all(self) -> None:
        with LOCK():
            for ref in list(self.known.values()):
                s = ref()
                if s is None:
                    continue
                self._evict(s)

    def _evict(self, s: Evictable, beside: bool = False) -> bool:
        """Take a storage's bytes away, the cheaper way; False: that can't be. `beside`: because of
        another that went.
        """
        if s.block is None or s.nbytes < 0:
            return False
        changes = evictable.changes()
        order = self._order(s)
        needs = None if order is None else [one for _, there in order for one in there]
        self.gone[id(s)] = s  # first, as the next: an interrupt may come
        gone = False
        try:
            if needs is not None:
                evictable.depends(s, needs)
                gone = evictable.evict(s, None, needs, changes)
            elif s.place is not None or self.spills:
                gone = evictable.evict(s, partial(self._write, s), None)
        except OSError as error:
            self._write_no_more(error)
            return self._evict(s, beside)  # by its recipe, or where a copy was
        if not gone:
            self.gone.drop(id(s))
            # another thread has begun to write, perhaps to something else
            return changes != evictable.changes() and self._evict(s, beside)
        if not beside:
            self.repetition.went(s, len(s), [] if order is None else [one for one, _ in order])
        self.known.pop(id(s), None)
        if order is not None:
            self._evict_beside(s, order[-1][0])
        return True

    def _evict_beside(self, s: Evictable, recipe: Recipe) -> None:
        """What is made again with what has gone goes as well, unless it was used much later, or
        something that is away is made from it. Plans need not know: it goes when they have `s` go.
        """
        now = perf_counter()
        for one in recipe.others(s):
            stale = now - one.used > AGED * (now - s.used)
            if stale and len(one) >= self.smallest and not evictable.is_needed(one):
                self._evict(one, beside=True)

    def _order(self, s: Evictable) -> list[tuple[Recipe, list[Evictable]]] | None:
        """What is to be followed, and held, where the bytes are better made again than read; None:
        they aren't.
        """
        known = s.recipe
        if known is None or s.held or s.place is not None:
            return None
        recipe: Recipe = known[0]
        if recipe.depth >= recipes.DEEPEST and evictable.is_needed(s):
            return None  # what is made from these bytes can't be by way of that recipe
        present = recipes.present(recipe)
        try:
            way = [(recipe, present)] if present is not None else list(recipes.upstream(recipe))
        except recipes.Lost:
            return None
        seconds = 0.0 if recipe.is_due(s) else sum([one.seconds for one, _ in way])
        writes = self.spills and not self.always
        if writes and (seconds > choice.spilling_of(s) or recipes.holds_more(recipe, s.nbytes)):
            return None
        return None if any([one.changing for _, there in way for one in there]) else way

    def _write_no_more(self, error: OSError) -> None:
        """Until there is room, if that is what lacks. This may be in the middle of an op."""
        self.error = error.with_traceback(None)  # whose frames have the block
        self.spills = False
        if error.errno in files.FULL:
            for ref in list(self.known.values()):
                one = ref()
                if one is not None and one.block is not None:
                    one.place = None
            self._write_again()
        if not self.spills and not self.notes:
            self._note_soon()

    def _write_again(self) -> None:
        """Where the disk was full and may have room."""
        if self.error is not None and self.error.errno in files.FULL:
            with contextlib.suppress(OSError):
                if files.file(self.directory).has_room():
                    self.spills, self.error = True, None

    def _write(self, s: Evictable, data: Any) -> files.Place:
        began = perf_counter()
        place = files.file(self.directory).write(data)
        counts.wrote(s.op, s.made_at, data.nbytes, perf_counter() - began)
        return place


def _sizes(leaves: Iterable[Any]) -> dict[int, int]:
    """Bytes of the storages that an expression reads, by their ids."""
    found = {}
    for leaf in leaves:
        s = leaf.storage
        found[id(s)] = len(s) if s.size is None else s.size
    return found
