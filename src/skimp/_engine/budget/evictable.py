"""A storage whose bytes may be away: how they go, and how they come back.

Storages become one of these while a budget is obeyed (`enrol`), by another class: those of a
program without a budget know nothing of it.

What may go is what nobody reads or writes now. Nothing announces that: an op that works on bytes
holds an ndarray over them, and so does whoever got `numpy()` or DLPack. So the block's references
are counted, with the block out of reach meanwhile: whoever wants it then waits for the lock.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

import numpy as np

from skimp._engine.budget import verify
from skimp._engine.budget.spill import Place
from skimp._engine.budget.statistics import counts
from skimp._engine.eval.expr import Expr, Leaf, lies_over, place_of, take_array
from skimp._engine.interpreter import HELD_BY_ATTRIBUTE, HELD_BY_VARIABLE
from skimp._engine.interrupts import insist
from skimp._engine.memory import call_site, storage as storages
from skimp._engine.memory.ledger import host
from skimp._engine.memory.pending import LOCK
from skimp._engine.memory.rematerialize import Followed, Rematerialized, settle
from skimp._engine.memory.spans import as_bytes
from skimp._engine.memory.storage import Storage
from skimp._engine.memory.users import alive

Array = np.ndarray[Any, Any]
Write = Callable[[Array], Place]
_BYTE = np.dtype(np.uint8)
_getrefcount = sys.getrefcount


class Evictable(Followed):
    """A storage known to a budget. Its bytes are in `block`, in an expression (`deferred`), in a
    file (`place`), or to be made again (`recipe`, from what `needs` keeps alive).
    """

    place: Place | None = None  # the bytes, or a copy of them
    recipe: Any = None  # (how they were made, which of its results they are)
    needs: Sequence[Storage] | None = (
        None  # what the recipe reads, while they are away because of it
    )
    dependents: list[weakref.ref[Evictable]] | None = None  # who may need these bytes
    writes: int = 0  # times that the bytes may have changed
    used: float = 0.0  # when somebody last asked for them
    held: int = 0  # recipes that are followed now and will read them
    settled: bool = False  # the op that made or wrote them is done
    born: int = 0  # its place among all that a budget has known
    number: tuple[int, int] = (-1, 0)  # a period, and the place in it (repetition.py)
    made_at: call_site.Site | None = None  # the line
    checksum: int | None = None  # of bytes that are away, where that is verified
    price: tuple[int, float | None] = (-1, None)  # of the recipe, and when that was found

    @property
    def op(self) -> str:
        """What made the bytes, as far as that was noted."""
        return "" if self.recipe is None else self.recipe[0].name

    def flat(self) -> Array:
        """All bytes as one uint8 array; has them back. Nothing is remembered: each look counts."""
        while (block := self.block) is None:
            if self.deferred is not None:
                self.materialize()
            else:
                bring_back(self)
        self.used = perf_counter()
        if block.dtype != _BYTE or block.strides != (1,):
            block = as_bytes(block)
        return block if self.size is None else block[: self.size]

    def export(self) -> Array:
        """All bytes for outsiders, who may write to them from now on."""
        self.materialize_readers()
        self._about_to_change()
        return super().export()

    def _wait_for(self, expr: Expr) -> None:
        self._about_to_change()
        if self.block is not None:  # what needs the old bytes had them made meanwhile
            host.refund(self)
            self.block = None
        super()._wait_for(expr)

    def will_write(self) -> None:
        """Before the bytes change: what needs them as they are is made, and what is known of them
        is no longer true.
        """
        super().will_write()
        self._about_to_change()

    def _about_to_change(self) -> None:
        _changes[0] += 1
        self.changing += 1  # one step with the line above
        try:
            # the youngest first: when it is made, what lived for that alone is no more
            for ref in reversed(self.dependents or ()):
                one = ref()
                if one is None or one.needs is None:
                    continue
                one.flat()
            self.dependents = None
            if self.place is not None or self.needs is not None:
                self.flat()
            self.place = self.recipe = None
            self.settled = False
            self.writes += 1
        finally:
            self.changing -= 1


_known = [0]
_changes = [0]


def changes() -> int:
    """How many writes have begun to what a budget knows."""
    return _changes[0]


def enrol(s: Any) -> bool:
    """Let a budget take the bytes of a storage away; False where that can't be."""
    kind = type(s)
    if kind is Evictable:
        return True
    if kind is Rematerialized and settle(s):
        kind = Storage
    if (kind is not Storage and kind is not Followed) or s.external:
        return False
    s.__class__ = Evictable
    s._flat = None
    s.used = perf_counter()
    _known[0] = s.born = _known[0] + 1
    return True


def leave(s: Evictable) -> None:
    """Let no budget take the bytes any more, which are there, or in a file alone."""
    if s.block is None and s.deferred is None:
        return
    s.writes += 1  # from here on nobody counts them: what was made from these bytes is not again
    s.recipe = s.place = s.dependents = s.checksum = None
    s.settled = s.loose = False
    s.price = (-1, None)
    s.__class__ = Storage if s.followers is None else Followed  # type: ignore[assignment]


def leave_all(known: Sequence[weakref.ref[Evictable]]) -> None:
    """Let no budget take the bytes of these any more."""
    for ref in known:
        s = ref()
        if type(s) is Evictable:
            leave(s)


def all_known() -> list[weakref.ref[Evictable]]:
    """The storages that a budget knows, whoever has them."""
    return [weakref.ref(s) for s in alive(Evictable)]


def needs_any(known: Sequence[weakref.ref[Evictable]]) -> bool:
    """Whether one of these is away because of its recipe."""
    return any([(s := ref()) is not None and s.needs is not None for ref in known])


def age() -> int:
    """How many storages a budget has known: those that come are younger."""
    return _known[0]


# -- leaves ---------------------------------------------------------------------------------------


def leaf_arrays(s: Storage) -> list[Array]:
    """What an expression reads, all of it there: to be kept while room is made for its result."""
    deferred = s.deferred
    if deferred is None:
        return []
    for leaf in deferred.leaves:
        if type(leaf.storage) is Evictable:
            return _gathered_arrays(deferred.leaves)
    return [leaf.array for leaf in deferred.leaves]


def _gathered_arrays(leaves: Collection[Leaf]) -> list[Array]:
    held: list[Evictable] = []
    try:
        gather([leaf.storage for leaf in leaves], held)
        return [leaf.array for leaf in leaves]
    finally:
        if held:
            insist(let_go, held)


class Gathered:
    """What an op is about to read, held until it has all of it: `gather`."""

    def __init__(self, held: list[Evictable]) -> None:
        self._held: Final = held
        self._given_up: Final[set[int]] = set()

    def hold(self, s: Evictable) -> None:
        if s not in self._held:
            s.held += 1
            self._held[:0] = (s,)  # one step with the line above, as a call would not be

    def offers(self) -> list[Evictable]:
        """What may go meanwhile, and was not given up before."""
        return [s for s in self._held if id(s) not in self._given_up]

    def give_up(self, s: Evictable) -> None:
        """Hold a storage no longer, if it goes: it is made again after the others."""
        if s in self._held:
            self._given_up.add(id(s))
            i = self._held.index(s)
            s.held -= 1
            del self._held[i]  # one step with the line above


class Reader(Protocol):
    """Who has what it is about to read, or works on."""

    def offers(self) -> list[Evictable]:
        """What may go where nothing else may, and was not given up before."""

    def give_up(self, s: Evictable) -> None:
        """Hold a storage no longer, if it goes."""


class _Gathering(threading.local):
    def __init__(self) -> None:
        self.now: list[Reader] = []


_gathering: Final = _Gathering()


def gathered() -> list[Reader]:
    """What this thread's ops have so far of what they are about to read, and what its formulas
    work on.
    """
    return _gathering.now


def gather(read: Sequence[Any], held: list[Evictable]) -> None:
    """Make again what is away among storages that an op is about to read, before the first of them
    is pinned: each recipe then has all the room. Until `let_go(held)`, which the caller's `finally`
    insists on, they may only be written to a file meanwhile; or go once, where one recipe does not
    have room beside them.
    """
    away = _away(read)
    if not away:
        return
    mine = Gathered(held)
    try:
        _gathering.now.append(mine)
        _have(mine, read, away)
    finally:
        insist(_leave, mine)


def _have(mine: Gathered, read: Sequence[Any], away: list[Evictable]) -> None:
    while away:  # again, as often as one of them was given up
        for s in read:
            if type(s) is Evictable:
                mine.hold(s)
        for s in away:
            s.flat()
        away = _away(read)


def _away(read: Sequence[Any]) -> list[Evictable]:
    return [s for s in read if type(s) is Evictable and s.needs is not None]


def _leave(mine: Gathered) -> None:
    if mine in _gathering.now:
        _gathering.now.remove(mine)


def let_go(held: list[Evictable]) -> None:
    """What was held for a reader may go by its recipe again. Twice is once."""
    while held:
        held[0].held -= 1
        del held[0]  # one step with the line above


def _leaves_on(s: Storage) -> list[Leaf]:
    """The leaves of waiting deferred expressions that have an array over the storage's bytes."""
    found: dict[int, Leaf] = {}
    block = s.block
    assert block is not None
    for ref in s.readers or ():
        reader = ref()
        expr = None if reader is None else reader.deferred
        if expr is not None:
            for leaf in expr.leaves:
                if leaf.storage is s and _has_array(leaf) and lies_over(leaf, block):
                    found[id(leaf)] = leaf
    return list(found.values())


def _has_array(leaf: Leaf) -> bool:
    try:
        object.__getattribute__(leaf, "array")
    except AttributeError:
        return False
    return True


# -- going ----------------------------------------------------------------------------------------


def evict(
    s: Evictable,
    write: Callable[[Array], Place] | None,
    needs: Sequence[Storage] | None,
    begun: int | None = None,
) -> bool:
    """Take a storage's bytes away: because of what its recipe `needs`, or after `write(bytes)` has
    given a place where they are. False where somebody has them, or another thread writes to one of
    these: more `changes()` than had `begun` when the recipe was followed for what it needs. Called
    under the storages' lock.
    """
    block: Any = s.block
    if block is None or s.handed_out or s.nbytes < 0:
        return False
    if s.size is None:
        s.size = block.nbytes
    leaves = _leaves_on(s) if s.readers else []
    ways = [place_of(leaf) for leaf in leaves]
    gone = False
    s.block = None  # from here on nobody else comes to it
    try:
        root: Any = block.base if isinstance(block.base, np.ndarray) else None
        others = _getrefcount(block) - HELD_BY_VARIABLE
        if root is not None:
            if others:
                return False
            others = _getrefcount(root) - HELD_BY_VARIABLE - 1  # and the block's `base`
        held = [_getrefcount(leaf.array) > HELD_BY_ATTRIBUTE for leaf in leaves]
        if others > len(leaves) or any(held):
            return False
        root = None
        verify.note(s, block)
        place = s.place
        if place is None and needs is None:
            assert write is not None
            place = write(as_bytes(block)[: s.size])
        for leaf, way in zip(leaves, ways, strict=True):
            take_array(leaf, way)
        if needs is not None and begun is not None and _changes[0] != begun:
            return False
        nbytes = s.nbytes  # one step with the test
        if place is not None:
            place.waiting = True
        s.place = place
        s.needs = needs if place is None else None
        s.nbytes = -1
        gone = True
        host.dropped = host.dropped + 1
        host.freed = host.freed + nbytes  # one step with the lines above
    finally:
        if not gone:
            s.block = block
    if host.watched:
        host.fell(id(s), nbytes)
    counts.went(nbytes, s.needs is not None)
    return True


def depends(s: Evictable, needs: Sequence[Storage]) -> None:
    """Have the storages that `s` is made from have it made before they change."""
    ref = weakref.ref(s)
    for one in needs:
        assert isinstance(one, Evictable)
        if one.dependents is None:
            one.dependents = []
        elif len(one.dependents) % 64 == 63:  # before `s` is among them: its bytes are still there
            one.dependents = [r for r in one.dependents if (x := r()) is not None and x.needs]
        one.dependents.append(ref)


def is_needed(s: Evictable) -> bool:
    """Whether something that is away is made from these bytes."""
    for ref in s.dependents or ():
        one = ref()
        if one is not None and one.needs is not None:
            return True
    return False


# -- coming back ----------------------------------------------------------------------------------

# what follows a recipe: set by the module that can (rematerializing.py), which knows this one
rematerialize: Final[list[Callable[[Evictable], None]]] = []


def bring_back(s: Evictable) -> None:
    """Have the bytes again. OSError: the file can't be read. OutOfMemoryError: no room for them."""
    with LOCK():
        if s.block is not None or s.deferred is not None:
            return
        began, before = perf_counter(), counts.seconds
        total, bringing, was_read = host.total, counts.bringing, s.place is not None
        try:
            counts.bringing = bringing + 1
            _tell()
            if s.place is not None:
                _read_back(s, s.place)
            elif s.needs is not None:
                rematerialize[0](s)
            else:
                raise RuntimeError("a storage without bytes: nothing was noted of how it was made")
        finally:
            counts.bringing = bringing  # first: a call may be interrupted
            insist(_tell)
            counts.seconds = before + perf_counter() - began
            if not bringing:
                counts.brought += host.total - total
        if s.checksum is not None:
            verify.compare(s, partial(_how, s, was_read))


def _tell() -> None:
    """What is made again is made like the first time, with the same parts, which a budget knew."""
    if host.budget is not None:
        host.kept_below = host.budget.kept_below


def _how(s: Evictable, was_read: bool) -> str:
    """How bytes came back: by what op, and by which others whose results nobody has."""
    if was_read or s.recipe is None:
        return "read from the file"
    found = [s.recipe[0]]
    for one in found:
        for source in one.sources:
            dead = source.origin is not None and source.storage() is None
            other = source.origin[0] if dead else None
            if other is not None and other not in found:
                found.append(other)
    if len(found) == 1:
        return f"made again by {found[0].name}, which has to be deterministic"
    names = ", ".join(dict.fromkeys([one.name for one in found[:0:-1]]))
    return f"made again by {names} and then {found[0].name}, which have to be deterministic"


def _read_back(s: Evictable, place: Place) -> None:
    nbytes = len(s)
    host.refund(s)  # of a read that was interrupted before it began
    try:
        block = storages.taken(nbytes, s)
        if s.block is not None:  # what was computed to make room has read it
            host.counted_twice(nbytes, s)
            return
        began = perf_counter()
        place.read(block[:nbytes])
        counts.read(s.op, s.made_at, nbytes, perf_counter() - began)
        # what its op still writes to it is not announced
        s.place = place if s.settled and not place.file.is_full else None
        s.block = block
    except BaseException:
        if s.block is None:
            s.place = place
            host.refund(s)
        raise
