"""The storages that are deferred: which they are, who reads what, when they must materialize."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from skimp._engine.eval.expr import Expr, Leaf, walk
from skimp._engine.interpreter import HELD_BY_VARIABLE
from skimp._engine.memory import ledger
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.ledger import host
from skimp._kernels.threads import Guard

if TYPE_CHECKING:
    from skimp._engine.memory.storage import Storage

# held while a deferred expression is materialized or replaced; a fork's child gets it free
LOCK = Guard()
WAITING: dict[int, weakref.ref[Storage]] = {}  # storages with a deferred expression, oldest first


def remember(s: Storage) -> None:
    """A deferred expression that could not be computed still waits."""
    WAITING[id(s)] = weakref.ref(s)


def register(s: Storage, expr: Expr) -> None:
    """`s` is deferred, by `expr`: it waits, and what the expression reads knows of it."""
    ref = weakref.ref(s)
    if s.staying is not None:  # few have the name: of more than 30 each has a dict of its own
        s.staying = None
    with LOCK():
        known = WAITING.get(id(s))
        if known is None or known() is not s:  # one that died, whose place is taken
            WAITING.pop(id(s), None)
            WAITING[id(s)] = ref
        for leaf in expr.leaves:
            source: Any = leaf.storage
            readers = source.readers
            if readers is None:
                source.readers = [ref]
            elif readers[-1]() is not s:
                readers.append(ref)
                if len(readers) > 64:
                    readers[:] = [
                        r for r in readers if (one := r()) is not None and one.deferred is not None
                    ]


def alive(refs: list[weakref.ref[Storage]] | None) -> Iterator[Storage]:
    """The storages of these references that still are."""
    return (s for ref in refs or () if (s := ref()) is not None)


def materialize_pending() -> None:
    """Materialize every expression, oldest first: what reading a counter and `synchronize()` do."""
    while waiting := [s for s in pending() if not s.spare]:
        with LOCK():
            for s in waiting:
                s.materialize()


def pending() -> list[Storage]:
    """The storages with a deferred expression, oldest first."""
    with LOCK():
        return _pending()


def _pending() -> list[Storage]:
    """The same for who has the lock."""
    # a copy is one step; a list is not: making one may run finalizers that defer
    waiting = WAITING.copy()
    found: list[Storage] = []
    for ref in waiting.values():
        s = ref()
        if s is not None:
            found += (s,)
    if len(found) < len(waiting):
        for key, ref in waiting.items():
            if ref() is None and WAITING.get(key) is ref:  # nobody else has its place yet
                WAITING.pop(key, None)
    return found


def lean(s: Storage) -> None:
    """A deferred expression that alone keeps bytes alive materializes; others may stay."""
    with LOCK():
        if s.deferred is not None and _read_by(s.deferred, _kept_alone(_pending())):
            s.materialize()


def forget(s: Storage) -> None:
    """A deferred expression is kept in some other way."""
    WAITING.pop(id(s), None)


def materialize_inner(expr: Expr) -> None:
    """Before `expr` is computed: expressions inside it that were computed inside something else
    before materialize now.

    So nothing is computed more than twice because nobody kept it.
    """
    if not WAITING:
        return
    owners = {id(s.deferred): s for s in pending()}
    if not owners:
        return
    for node in walk((expr,)):
        s = owners.get(id(node))
        if s is not None and s.deferred is node:
            s.runs += 1
            if s.runs > 1:
                s.materialize()


def relieve() -> bool:
    """Before the pool is asked: expressions that keep alive what eager execution would have freed
    materialize; whether any did.

    An expression may stay if it keeps alive nothing of its own, or just the one block that its
    result will take over.
    """
    done = False
    with LOCK():
        waiting = _pending()
        alone = _kept_alone(waiting)
        if not alone:
            return False
        for s in waiting:
            expr = s.deferred
            if expr is None or (s.staying is not None and len(s.staying) == 1):
                continue
            kept = _read_by(expr, alone)
            donor: Any = s.donor(expr) if kept == 1 else None
            if donor is not None:
                found = _for_good(expr, donor)
                if found is not None:
                    s.staying = found
            del expr
            if kept and donor is None:
                s.materialize()
                done = True
                alone = _kept_alone(_pending())
                if not alone:
                    break
            del donor
    return done


def _for_good(expr: Expr, donor: Any) -> list[weakref.ref[Storage]] | None:
    """The readers of the only large storage that `expr` reads, and alone keeps alive: it stays as
    long as there comes no other one, for nobody else can get at that.
    """
    large = [leaf for leaf in expr.leaves if len(leaf.storage) >= POOLED]  # type: ignore[arg-type]
    if len(large) > 1 or donor.spare:
        return None
    readers: list[weakref.ref[Storage]] = donor.readers
    readers[:] = [ref for ref in readers if (s := ref()) is not None and s.deferred is not None]
    return readers


def _kept_alone(waiting: list[Storage]) -> set[int]:
    """Ids of the counted storages that only the deferred expressions of these keep alive."""
    holders: dict[int, int] = {}
    leaves: set[Leaf] = set()  # as many as hold a storage: expressions share them
    for one in waiting:
        expr = one.deferred
        if expr is not None:
            leaves |= expr.leaves
    for leaf in leaves:
        s: Any = leaf.storage
        if s.nbytes >= POOLED:
            holders[id(s)] = holders.get(id(s), 0) + 1
    alone = set()
    for leaf in leaves:
        s = leaf.storage
        if s.nbytes >= POOLED and sys.getrefcount(s) == HELD_BY_VARIABLE + holders[id(s)]:
            alone.add(id(s))
    return alone


def _read_by(expr: Expr, storages: set[int]) -> int:
    """How many of the storages with these ids it reads."""
    return len(storages.intersection([id(leaf.storage) for leaf in expr.leaves]))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.lock.acquire,
        after_in_parent=LOCK.lock.release,
        after_in_child=LOCK.lock.release,
    )
ledger.before_reading.append(materialize_pending)
host.relievers.insert(0, materialize_pending)
