"""Storage: one allocation, or the expression of one. Everything that aliases shares it.

State lives here and nowhere else: code outside this package calls `view`, `will_write` and
`materialize`, and never asks whether a storage is resident or deferred, except the evaluator's
door, which asks for `deferred`. Which storages wait, and for whom, is in pending.py.
"""

from __future__ import annotations

import itertools
import math
import sys
import weakref
from threading import get_ident
from typing import Any, Final

import numpy as np

from skimp._engine.eval import into, run
from skimp._engine.eval.expr import COPY, Expr, Leaf, Whole, is_shared
from skimp._engine.interpreter import (
    HELD_BY_ARGUMENT,
    HELD_BY_ATTRIBUTE,
    HELD_BY_VARIABLE,
    enters_uninterrupted,
)
from skimp._engine.interrupts import once_more, raise_later
from skimp._engine.memory import call_site
from skimp._engine.memory.caching import POOLED, pool
from skimp._engine.memory.keeping import watch
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.ledger import Ledger, host
from skimp._engine.memory.pending import (
    LOCK,
    WAITING,
    alive,
    forget,
    materialize_inner,
    register,
    relieve,
    remember,
)
from skimp._engine.memory.spans import Exported, as_bytes, over
from skimp._engine.memory.users import users
from skimp._engine.tensor.instances import share_names
from skimp._kernels import shaping
from skimp._kernels.threads import at_once
from skimp.errors import OutOfMemoryError

Array = np.ndarray[Any, Any]
_BYTE = np.dtype(np.uint8)
_OWN = HELD_BY_ARGUMENT + 1  # references to an expression that is computed: and `deferred`


# Numbers autograd's nodes in the order in which they are made, and among them writes that no
# version counts.
sequence: itertools.count[int] = itertools.count(1)


# What every storage has from the moment it is made.
DEFAULTS: Final[dict[str, Any]] = {
    "block": None, "deferred": None, "readers": None, "size": None, "_flat": None,
    "nbytes": -1, "version": 0, "saved": False,
}  # fmt: skip


class Storage:
    """The only owner of bytes. Instances are built by the functions below, never by calling the
    class.

    `block` is the ndarray that owns the bytes (an op's own small result, a lease of the pool,
    somebody's array), None while `deferred` stands for them. `nbytes` is what the ledger counts for
    it, whoever counts it sets it (ledger.py): -1 for what it does not count.
    """

    # filled by `bare`, or by C (`_kernels/loops/instances.h`)
    __slots__ = (*DEFAULTS, "__dict__", "__weakref__")
    _skimp_last = "nbytes"  # who has it has all of them

    block: Array | None
    deferred: Expr | None
    nbytes: int
    size: int | None  # bytes that tensors may use; None: all of the block
    version: int  # shared by base and views: an in-place write costs this increment
    unseen: int = 0  # when it was last written to by a tensor with a version of its own (`x.data`)
    # deferred storages whose deferred expressions may read these bytes
    readers: list[weakref.ref[Storage]] | None
    # somebody outside may write to the bytes unseen, or has: nothing that reads them is deferred.
    # What each array that was handed out keeps; True where outsiders never end
    exported: object = False
    external: bool = False  # the bytes belong to somebody else
    handed_out: bool = False  # somebody outside has their address
    site: call_site.Site | None = None  # where the expression was made, if somebody listened
    saved: bool  # autograd saved a tensor on it, and wants to know the line of the next write
    written: Any = None  # that line
    runs: int = 0  # how often the expression was computed inside a larger one
    loose: bool = False  # a budget may take the bytes: no tensor keeps an ndarray over them
    changing: int = 0  # the bytes will be others: nobody may begin to need them (_engine/budget)
    spare: bool = False  # it waits for its reader alone (_engine/memory/rematerialize.py)
    _flat: Array | None

    @enters_uninterrupted
    def __del__(self, host: Ledger = host) -> None:  # modules end before the last storage does
        try:
            n = self.nbytes
        except AttributeError:  # it was interrupted before it had anything
            return
        if n >= 0:
            host.dropped = host.dropped + 1
            host.freed = host.freed + n
            if host.watched:
                try:
                    host.fell(id(self), n)
                except BaseException as stop:  # Python would print it, and go on
                    later = once_more(stop)
                    if later is None:
                        raise
                    (_,) = map(raise_later, (get_ident(),), (later,))
        elif self.deferred is not None and not self.spare:
            host.unwritten = host.unwritten + (self.size or 0)

    def __len__(self) -> int:
        """Bytes that tensors may use."""
        if self.size is not None:
            return self.size
        assert self.block is not None
        return self.block.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (self.flat(),)  # pickled once, whoever shares it

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        new = empty(len(self))
        new.flat()[:] = self.flat()
        memo[id(self)] = new
        return new

    def flat(self) -> Array:
        """All bytes as one uint8 array; materializes."""
        if self._flat is not None:
            return self._flat
        if self.deferred is not None:
            self.materialize()
            if type(self) is not Storage:  # a budget may have given it another class meanwhile
                return self.flat()
        block = self.block
        assert block is not None
        if block.dtype != _BYTE or block.strides != (1,):
            block = as_bytes(block)
        self._flat = block if self.size is None else block[: self.size]
        return self._flat

    def address(self) -> int:
        """Where the bytes begin; materializes."""
        size = self.size
        if size == 0 or (size is None and len(self) == 0):
            return 0
        block = self.block if self.deferred is None else self.flat()
        assert block is not None
        return shaping.address(block)

    def hand_out(self) -> int:
        """Where the bytes begin, for the program: from now on they stay there."""
        self.handed_out = True
        return self.address()

    def view(self, layout: Layout, dtype: np.dtype[Any]) -> Array:
        """An ndarray over these bytes; materializes. It does not keep the storage alive, only the
        block.

        RuntimeError: the storage is too small, because it was resized.
        """
        flat = self._flat
        return over(self.flat() if flat is None else flat, layout, dtype)

    def export(self) -> Array:
        """All bytes as a uint8 array that keeps this storage alive; from now on outsiders may write
        to it.
        """
        outsiders = self.outsiders()  # first: what is materialized now can't be made from these
        self.materialize_readers()
        return np.asarray(Exported(self, outsiders))

    def outsiders(self) -> object:
        """What stands for those to whom the bytes are handed out: there are some while somebody
        keeps it.
        """
        new = object()
        if not self.exported:
            self.exported = new  # one step with the line above
        return self.exported

    def has_outsiders(self) -> bool:
        """Whether somebody outside can write to the bytes: an array that was handed out is alive,
        or one that lies over its bytes.
        """
        if not self.exported:
            return False
        return self.exported is True or sys.getrefcount(self.exported) > HELD_BY_ATTRIBUTE

    def resize(self, nbytes: int, tensors: list[Any] | None = None) -> None:
        """Another number of bytes, the old ones kept as far as they reach. Views made before see
        the new block. `tensors`: all that are on this storage, where that is known.
        """
        if self.external or self.exported:
            raise RuntimeError("Trying to resize storage that is not resizable")
        self.will_write()
        tensors = users(self) if tensors is None else tensors
        for t in tensors:
            t._skimp_layout_of()  # while the old block can still tell the offset
        old, other = self.flat(), empty(nbytes)
        n = min(len(old), nbytes)
        other.flat()[:n] = old[:n]
        host.refund(self)
        self.block, self.size, self._flat = other.block, nbytes, None
        self.nbytes, other.nbytes = other.nbytes, -1
        host.handed(nbytes, id(other), self)
        for t in tensors:
            t._np = None

    # -- writing ----------------------------------------------------------------------------------

    def will_write(self) -> None:
        """Before the bytes change: every expression that reads them materializes, and so does this
        storage's own.
        """
        if self.readers is not None:
            self.materialize_readers()
        if self.deferred is not None:
            self.materialize()

    def materialize_readers(self, but: Storage | None = None) -> None:
        with LOCK():
            for reader in list(alive(self.readers)):
                deferred = reader.deferred
                if reader is but or deferred is None or not self.is_read_by(deferred):
                    continue
                reader.materialize()
            self.readers = None  # not before: one may fail, and the rest is still to come

    def overwrite(self, source: Storage, array: Array) -> bool:
        """Compute `source`'s expression straight over `array`, elements of this storage that it may
        read one for one: `x[:] = exp(x)` without a second block. False where that can't be.

        `source` has the same values afterwards, so it defers a copy of them.
        """
        with LOCK():
            expr = source.deferred
            if expr is None or self.deferred is not None or self.exported:
                return False
            if expr.shape != array.shape or expr.dtype != array.dtype:
                return False
            if any(into.crosses(leaf.array, array) for leaf in expr.leaves):
                return False
            copied = Expr(COPY, (Leaf(self, array),), expr.shape, expr.dtype)

            forget(source)
            try:
                self.materialize_readers(source)
                materialize_inner(expr)
                self._about_to_change()
                if source.deferred is not expr:  # a reader of this was one of it, too
                    return False
                run.evaluate(expr, array, [(setattr, source, "deferred", copied)])
            finally:
                if source.deferred is not None:
                    register(source, source.deferred)
            return True

    def _about_to_change(self) -> None:
        """For whoever knows more of the bytes: from here on they are others, and no expression
        reads those of before.
        """

    def is_read_by(self, expr: Expr) -> bool:
        return any(leaf.storage is self for leaf in expr.leaves)

    # -- expressions ------------------------------------------------------------------------------

    def materialize(self) -> None:
        """Compute the expression: into a block of its own, or into one that only this computation
        still reads.
        """
        with LOCK():
            expr = self.deferred
            if expr is None:
                return
            WAITING.pop(id(self), None)
            try:
                if expr.size > 1:
                    materialize_inner(expr)
                self._compute(expr)
            except BaseException:
                if self.deferred is not None:
                    remember(self)
                raise

    def _compute(self, expr: Expr) -> None:
        if self.nbytes >= 0:  # of a computation that was interrupted twice, or that waits for this
            host.refund(self)
        size = self.size
        assert size is not None
        _kept = None if host.budget is None else host.budget.computes(self)
        # Who else holds the expression is about to read its leaves, as a reduction that asks for
        # room for its result: nothing may be computed over them.
        donor = self.donor(expr) if sys.getrefcount(expr) <= _OWN else None
        # after others were computed nobody else may read what this reads
        if donor is None and WAITING and size >= POOLED and watch.sees_one_alone() and relieve():
            donor = self.donor(expr) if sys.getrefcount(expr) <= _OWN else None
        if donor is not None and is_shared(expr, donor):
            donor = None
        if donor is not None:
            for leaf in expr.leaves:
                _ = leaf.array  # is made now, if it is not there
        # what was computed to relieve, or to make what this reads, may read this: it has the bytes
        if self.deferred is not expr:
            return
        if donor is not None:
            self._compute_over(donor, expr)
            return
        try:
            block = taken(size, self)
            if self.deferred is not expr:  # likewise, where that made room within a limit
                host.counted_twice(size, self)
                return
            into.write(expr, np.ndarray(expr.shape, expr.dtype, block))
            if self.deferred is not expr:  # likewise, and what was counted here was refunded
                return
            self.block = block  # one step with the next line (see ledger.py)
            self.deferred = None
        except BaseException:
            if self.block is None:
                host.refund(self)
            raise

    def _compute_over(self, donor: Storage, expr: Expr) -> None:
        """Into the donor's block, whose old values are lost on the way: all of it or nothing."""
        block = donor.block
        assert block is not None
        room = donor.flat()  # a small block that NumPy made may have any shape
        donor.changing += 1
        try:
            run.evaluate(expr, np.ndarray(expr.shape, expr.dtype, room), (
                (setattr, self, "block", block), (setattr, self, "nbytes", donor.nbytes),
                (setattr, donor, "block", None), (setattr, donor, "nbytes", -1),
                (setattr, self, "deferred", None),
            ))  # fmt: skip
        finally:
            donor.changing -= 1
            if self.block is block:
                host.handed(self.nbytes, id(donor), self)

    def give_way(self, expr: Expr) -> bool:
        """For who reads `expr` element by element and writes over it what nobody shall ask this
        storage for: it has the block that the expression alone reads from now on, and waits no
        more. False where there is none, or somebody else has a part of the expression that reads
        it.
        """
        with LOCK():
            donor = None if self.deferred is not expr else self.donor(expr)
            if donor is None or is_shared(expr, donor):
                return False
            self._about_to_change()
            block = donor.block
            WAITING.pop(id(self), None)
            at_once([
                (setattr, self, "block", block), (setattr, self, "nbytes", donor.nbytes),
                (setattr, donor, "block", None), (setattr, donor, "nbytes", -1),
                (setattr, self, "deferred", None),
            ])  # fmt: skip
            host.handed(self.nbytes, id(donor), self)
            return True

    def awaited(self) -> Expr | None:
        """The expression of a deferred storage for whoever makes another of it, if there is one
        still: not while another thread computes it, which may be over what it reads.
        """
        with LOCK():
            return self.deferred

    def replace(self, expr: Expr) -> bool:
        """A pointwise in-place op on all of a deferred storage: the expression changes, nobody who
        reads it does. False where it has been computed meanwhile.
        """
        with LOCK():
            if self.deferred is None:
                return False
            self._wait_for(expr)
            return True

    def _wait_for(self, expr: Expr) -> None:
        register(self, expr)

    def donor(self, expr: Expr) -> Storage | None:
        """The leaf's storage whose block the result may take: same bytes, read by
        nothing but this. What is computed whole is computed over nothing.
        """
        if type(expr) is Whole:
            return None
        for leaf in expr.leaves:
            s: Any = leaf.storage
            mine = 0
            for one in expr.leaves:
                if one.storage is s:
                    mine += 1
            # first what tells most: somebody else holds the storage
            if sys.getrefcount(s) != HELD_BY_VARIABLE + mine:
                continue
            # counted for it is nothing where a budget has taken it away
            if s.nbytes > 0 and leaf.array.nbytes == self.size and self._may_take(expr, leaf):
                return s  # type: ignore[no-any-return]
        return None

    def _may_take(self, expr: Expr, leaf: Leaf) -> bool:
        """Whether nobody else reads the storage of the leaf, and the expression element for
        element.
        """
        s: Any = leaf.storage
        a = leaf.array
        if (
            s.exported
            or (s.block.nbytes if s.size is None else s.size) != self.size
            or a.shape != expr.shape
            or a.dtype.itemsize != expr.dtype.itemsize
            or not a.flags.c_contiguous
        ):
            return False
        for one in expr.leaves:
            if one.storage is s and one.array.strides != a.strides:
                return False
        for ref in s.readers or ():
            r = ref()
            if r is not None and r is not self:
                other = r.deferred
                if other is not None and s.is_read_by(other):
                    return False
        return True


# -- making storages ------------------------------------------------------------------------------


def bare(cls: type[Storage] = Storage) -> Storage:
    """A storage that has nothing, and is counted for nothing."""
    s = object.__new__(cls)
    s.block = s.deferred = s.readers = s.size = s._flat = None
    s.version = 0
    s.saved = False
    s.nbytes = -1
    return s


def owned(block: Array) -> Storage:
    """The storage of a fresh array that nobody else holds."""
    s = bare()
    s.block = block
    if host.budget is not None:
        host.budget.receive(block.nbytes, s)
    host.charge(block.nbytes, s)
    return s


def external(array: Array) -> Storage:
    """The storage of somebody else's array: not counted, never deferred, never donated."""
    s = bare()
    s.block = array
    s.exported = s.external = True
    return s


def empty(nbytes: int, zeroed: bool = False) -> Storage:
    """A resident storage of `nbytes` bytes."""
    if WAITING and nbytes >= POOLED and watch.sees_one_alone():
        relieve()
    s = bare()
    s.block = block = taken(nbytes, s, zeroed)
    s.size = nbytes
    if type(s) is Storage and not s.loose:  # no budget knows it yet, or will
        s._flat = block[:nbytes]  # which most ask for
    return s


share_names(bare, "written")


def is_settled(s: Storage) -> bool:
    """Whether the bytes are there, no budget knows them, and nothing waits that reads them: then a
    write allocates nothing.
    """
    return type(s) is Storage and s.block is not None and s.readers is None


def vacate(s: Storage) -> None:
    """Give the bytes back, and stay without any: `refill` comes before anybody looks again. The
    tensors on it must hold no ndarrays.
    """
    s.will_write()
    host.refund(s)
    s.block, s.size, s._flat = np.empty(0, np.uint8), 0, None


def refill(s: Storage, nbytes: int) -> None:
    """Bytes for a storage that was vacated, uninitialised."""
    if WAITING and nbytes >= POOLED and watch.sees_one_alone():
        relieve()
    s.block, s._flat = taken(nbytes, s), None
    s.size = nbytes


@call_site.named("load")
def restored(flat: Array) -> Storage:
    """A storage with these bytes, which come from a pickle."""
    s = empty(flat.nbytes)
    s.flat()[:] = flat
    return s


def defer(expr: Expr, waits: bool = True) -> Storage:
    """A storage whose bytes are `expr`'s value in memory order; unless it waits, of which nobody
    knows yet."""
    size = math.prod(expr.shape) * expr.dtype.itemsize
    s = object.__new__(Storage)  # `bare`, written out
    s.block = s.readers = s._flat = None
    s.version = 0
    s.saved = False
    s.size = size
    s.deferred = expr
    s.nbytes = -1
    if not waits:
        return s
    if host.watched:
        s.site = call_site.find()
    register(s, expr)
    if host.budget is not None:
        host.budget.deferring(s)
    return s


def taken(nbytes: int, owner: Storage, zeroed: bool = False) -> Array:
    """Bytes for `owner`, counted: from the pool, or from NumPy where they are few. What would have
    been freed by now is the caller's affair (`relieve`).
    """
    if nbytes < POOLED:
        if host.budget is not None:
            host.budget.receive(nbytes, owner)
        host.charge(nbytes, owner)
        block: Array = np.zeros(nbytes, np.uint8) if zeroed else np.empty(nbytes, np.uint8)
        return block
    if host.bounded:
        if host.budget is None:
            return _admitted(nbytes, owner, zeroed)
        with LOCK():  # what room is made for one thread no other one takes
            return _admitted(nbytes, owner, zeroed)
    block = pool.take(nbytes, zeroed)
    host.made = host.made + 1
    host.total = total = host.total + nbytes
    owner.nbytes = nbytes
    if total - host.freed > host.ceiling:
        host.rise(nbytes, owner)
    return block


def _admitted(nbytes: int, owner: Storage, zeroed: bool) -> Array:
    """A block of the pool's for which there is room within the bound."""
    size = pool.rounded(nbytes)
    host.admit(size, owner)
    try:
        block = pool.take(nbytes, zeroed)
    except OutOfMemoryError:
        if host.fits(size):
            raise
        return _admitted(nbytes, owner, zeroed)  # another thread's small arrays took the room
    host.made = host.made + 1
    host.total = total = host.total + nbytes
    owner.nbytes = nbytes
    if total - host.freed > host.ceiling:
        host.rise(nbytes, owner)
    return block
