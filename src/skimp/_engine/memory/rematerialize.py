"""Bytes that are not kept because they can be made again: an expression that nobody waits for.

Autograd keeps such a storage for backward instead of a result's own: an expression to compute the
result once more, from what the graph keeps anyway. It stands for the original in every way that
can be asked for: its version is the original's, so that a write to that is noticed, and while the
original is alive, it lends its block.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from skimp._engine.eval.expr import COPY, Expr, Leaf, Whole, later, lies_over, place_of, take_array
from skimp._engine.interpreter import HELD_BY_ARGUMENT, HELD_BY_VARIABLE, enters_uninterrupted
from skimp._engine.interrupts import finalizer
from skimp._engine.memory import call_site
from skimp._engine.memory.keeping import nobody
from skimp._engine.memory.ledger import host
from skimp._engine.memory.pending import LOCK, forget, register
from skimp._engine.memory.storage import Storage, defer

_own_readers: Any = Storage.__dict__["readers"]
_own_version: Any = Storage.__dict__["version"]
# by who asks, and tensors: of who has read them, and of what may do with the expression
_ASKED = HELD_BY_ARGUMENT + 2
_BRIEF = 2  # steps of an expression that may be computed twice
_LITTLE = 5, 4  # of the bytes that a result has, those that it is made of may be so many times more


class Followed(Storage):
    """A storage that others stand for: when it goes, it tells them how often it was written to."""

    followers: list[weakref.ref[Rematerialized]] | None = None

    @property
    def unseen(self) -> int:
        found: int = self.__dict__.get("unseen", 0)
        return found

    @unseen.setter
    def unseen(self, value: int) -> None:
        self.lend()
        self.__dict__["unseen"] = value

    def outsiders(self) -> object:
        found = super().outsiders()  # first: what is materialized now can't be made from these
        if self.followers:
            self.flat()
            self.lend()
        return found

    def lend(self) -> None:
        """Before the bytes change, and no version tells: who stands for them as they are now
        has this block from here on, as if autograd had saved the tensor.
        """
        for ref in self.followers or ():
            follower = ref()
            if follower is None or self.block is None:
                continue
            if follower.noted == self.version and follower.seen == self.unseen:
                follower.materialize()

    @finalizer
    @enters_uninterrupted
    def __del__(self) -> None:  # type: ignore[override]  # Storage's has a default, and no more
        Storage.__del__(self)  # first: nothing can come before it
        for ref in self.followers or ():
            follower = ref()
            if follower is not None:
                follower.last = self.version, self.written
                # its own from now on; by name, `follower.readers` still were those of this one
                _own_readers.__set__(follower, self.readers)

    def is_read_by(self, expr: Expr) -> bool:
        """Also by way of those who have its block, or would have."""
        return any(
            one.storage is self or getattr(one.storage, "original", nobody)() is self
            for one in expr.leaves
        )


class Way:
    """An expression of bytes that there are, and what it reads, at which versions."""

    __slots__ = ("__weakref__", "expr", "sources")

    def __init__(self, expr: Expr, sources: Iterable[Any]) -> None:
        self.expr: Final = expr
        self.sources: Final = [(s, s.version, s.unseen) for s in sources]

    def let_go(self) -> None:
        """What it has read may go meanwhile, within a budget."""
        for leaf in self.expr.leaves:
            s: Any = leaf.storage
            if s.block is not None and lies_over(leaf, s.block):
                take_array(leaf, place_of(leaf))

    def is_open(self) -> bool:
        """Whether it gives the same bytes still."""
        for s, version, unseen in self.sources:
            if s.exported or s.version != version or s.unseen != unseen:
                return False
        return True


class Rematerialized(Storage):
    """An expression to make the bytes of `original` once more, which only their reader wants."""

    spare = True
    original: weakref.ref[Storage]
    noted: int = 0  # its version at which it has these bytes
    seen: int = 0  # the last write to it that no version counts
    last: tuple[int, Any] = (0, None)  # version and line of the last write, when it is gone
    lent: Storage | None = None  # whose block this is
    way: weakref.ref[Way] | None = None  # while it lives, no budget need know the bytes

    @property
    def version(self) -> int:
        s = self.original()
        return self.last[0] if s is None else s.version

    @version.setter
    def version(self, value: int) -> None:
        s = self.original()
        if s is None:
            self.last = value, self.last[1]
        else:
            s.version = value

    @property
    def written(self) -> Any:
        s = self.original()
        return self.last[1] if s is None else s.written

    @written.setter
    def written(self, line: Any) -> None:
        s = self.original()
        if s is None:
            self.last = self.last[0], line
        else:
            s.written = line

    @property
    def readers(self) -> list[weakref.ref[Storage]] | None:
        """Who writes to the original has to know who reads its block by way of this, or will."""
        s = self.original()
        return _own_readers.__get__(self) if s is None else s.readers

    @readers.setter
    def readers(self, value: list[weakref.ref[Storage]] | None) -> None:
        s = self.original()
        if s is None:
            _own_readers.__set__(self, value)
        else:
            s.readers = value

    @property
    def exported(self) -> object:
        """Who was given the original's bytes may write to them."""
        lent = self.lent
        return self.__dict__.get("exported", False) if lent is None else lent.exported

    @exported.setter
    def exported(self, value: object) -> None:
        lent = self.lent
        if lent is None:
            self.__dict__["exported"] = value
        else:
            lent.exported = value

    def materialize(self) -> None:
        """As of every deferred expression; but bytes that are still there are not made again."""
        s = self.original()
        with LOCK():
            if (
                self.deferred is not None
                and s is not None
                and s.block is not None
                and s.version == self.noted
            ):
                forget(self)
                self.block, self.lent, self.deferred = s.block, s, None
            expr = self.deferred
            super().materialize()
            if expr is not None:
                self._leave(expr)
                if s is None and host.budget is not None:
                    host.budget.made_again(self, expr)

    def _leave(self, expr: Expr) -> None:
        """What the expression read has no readers where this was the only one: writes to it are
        those of a storage that nobody reads again.
        """
        for leaf in expr.leaves:
            source: Any = leaf.storage
            readers = source.readers
            if readers is not None and len(readers) == 1 and readers[0]() is self:
                source.readers = None

    def way_back(self) -> Way | None:
        """What has the bytes, which are not there yet, go again once somebody has read them: a few
        steps by blocks, of one tensor.
        """
        with LOCK():
            expr, s = self.deferred, self.original()
            if expr is None or type(expr) is Whole or expr.size > _BRIEF:
                return None
            if s is not None and s.block is not None:
                return None  # which will lend it
            sources: set[Any] = {leaf.storage for leaf in expr.leaves}
            if sum([len(s) * 2 > len(self) for s in sources]) > 1:
                return None  # a sum, for instance
            way = Way(expr, sources)
            self.way = weakref.ref(way)
            return way

    def go_back(self, way: Way) -> None:
        """Let the bytes go, unless somebody else has them, or two more tensors wait for them, or
        what they are made of has changed.
        """
        if sys.getrefcount(self) > _ASKED:
            return
        with LOCK():
            block = self.block
            if block is None or self.lent is not None or self.exported or self.handed_out:
                return
            held = HELD_BY_VARIABLE + (1 if self._flat is None else 2)
            if sys.getrefcount(block) != held or isinstance(block.base, np.ndarray):
                return
            if not way.is_open():
                return
            little = keeps_little([s for s, *_ in way.sources], len(self))
            register(self, way.expr, host.budget is not None or not little)
            host.refund(self)
            self._flat = self.block = None

    def awaited(self) -> Expr | None:
        """Of what is computed whole, an expression that reads it."""
        expr = super().awaited()
        if type(expr) is not Whole:
            return expr
        return Expr(COPY, (reader_of(self, expr.shape, expr.dtype),), expr.shape, expr.dtype)

    def replace(self, expr: Expr) -> bool:
        """Not here: who waits for this reads it, and not its expression alone."""
        return False

    def will_write(self) -> None:
        """Before the bytes change: they may be the original's, whose readers are this one's."""
        for s in (self.original(), self.lent):
            if s is not None:
                s.will_write()
        super().will_write()


def way_back(s: Storage) -> Way | None:
    """`Rematerialized.way_back` of a storage, if it is one."""
    return s.way_back() if type(s) is Rematerialized else None


def has_others(s: Storage) -> bool:
    """Whether its bytes are another's too, or its version is one's that stands for it."""
    if isinstance(s, Rematerialized):
        return s.lent is not None or s.original() is not None
    followers = s.followers if isinstance(s, Followed) else None
    return followers is not None and any([ref() is not None for ref in followers])


def reader_of(s: Storage, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Leaf:
    """A leaf on all of a storage, whose bytes are asked for when somebody reads it."""
    return later(s, lambda s: np.ndarray(shape, dtype, s.flat()))


def reads_whole(s: Any) -> bool:
    """Whether something computed whole has to be before a storage has its bytes."""
    expr = s.deferred
    if expr is None:
        return False
    return type(expr) is Whole or any([reads_whole(leaf.storage) for leaf in expr.leaves])


def settle(s: Rematerialized) -> bool:
    """Have it be a storage as any other, which stands for nothing: it has bytes of its own, and the
    one that had them first is gone. False: not so.
    """
    with LOCK():
        if type(s) is not Rematerialized:
            return type(s) is Storage
        if s.way is not None and s.way() is not None:  # the bytes go by that
            return False
        if s.block is None or s.lent is not None or s.original() is not None:
            return False
        version, s.__dict__["written"] = s.last
        _own_version.__set__(s, version)
        s.__class__ = Storage  # type: ignore[assignment]
        return True


def rematerialized_of(original: Storage) -> Rematerialized | None:
    """Who stands for it as it is now already, if anybody does."""
    if isinstance(original, Followed):
        for ref in original.followers or ():
            follower = ref()
            if follower is None or follower.seen != original.unseen:
                continue
            if follower.noted == original.version:
                return follower
    return None


def rematerialized(expr: Expr, original: Storage, waits: bool) -> Rematerialized:
    """A storage with an expression that stands for the one whose bytes it has.

    It need not wait, as a deferred storage does, where it keeps alive hardly more than those bytes:
    then nobody who takes a block has to look at it.
    """
    new: Any = defer(expr, waits=False)
    new.__class__ = Rematerialized
    new.original, new.noted = weakref.ref(original), original.version
    new.seen = original.unseen
    if waits and host.watched:
        new.site = call_site.find()
    register(new, expr, waits)
    if host.budget is not None:
        host.budget.deferring(new)
    if not isinstance(original, Followed):
        original.__class__ = Followed
    followed: Any = original
    if followed.followers is None:
        followed.followers = []
    followed.followers.append(weakref.ref(new))
    return new  # type: ignore[no-any-return]


def keeps_little(read: Iterable[Any], nbytes: int) -> bool:
    """Whether storages that an expression of `nbytes` reads have hardly more."""
    most, of = _LITTLE
    return sum([len(s) for s in read]) * of <= nbytes * most
