"""The storages that are deferred: which they are, who reads what, when they must materialize."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from skimp._engine.eval.expr import Expr, walk
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
    found = []
    # a copy is one step; a list of pairs is not: making one may run finalizers that defer
    for key, ref in WAITING.copy().items():
        s = ref()
        if s is not None:
            found.append(s)
        elif WAITING.get(key) is ref:  # nobody else has its place yet
            WAITING.pop(key, None)
    return found


def lean(s: Storage) -> None:
    """A deferred expression that alone keeps bytes alive materializes; others may stay."""
    with LOCK():
        if s.deferred is not None and _kept_alone(s.deferred, _holders(_pending())):
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


def relieve() -> None:
    """Before the pool is asked: expressions that keep alive what eager execution would have freed
    materialize.

    An expression may stay if it keeps alive nothing of its own, or just the one block that its
    result will take over.
    """
    with LOCK():
        waiting = now = _pending()
        holders: dict[int, set[int]] | None = None
        for s in waiting:
            expr = s.deferred
            if expr is None or (s.staying is not None and len(s.staying) == 1):
                continue
            if holders is None:
                holders = _holders(now or _pending())
                now = []
            kept = _kept_alone(expr, holders)
            donor: Any = s.donor(expr) if len(kept) == 1 else None
            if donor is not None:
                found = _for_good(expr, donor)
                if found is not None:
                    s.staying = found
            del expr
            if kept and donor is None:
                s.materialize()
                holders = None
            del donor


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


def _holders(waiting: list[Storage]) -> dict[int, set[int]]:
    """By a counted storage's id, the ids of the leaves by which deferred expressions hold it."""
    holders: dict[int, set[int]] = {}
    for s in waiting:
        if s.deferred is not None:
            for leaf in s.deferred.leaves:
                source: Any = leaf.storage
                if source.nbytes >= POOLED:
                    holders.setdefault(id(source), set()).add(id(leaf))
    return holders


def _kept_alone(expr: Expr, holders: dict[int, set[int]]) -> list[int]:
    """Sizes of the counted storages that only deferred expressions keep alive, among those that
    `expr` reads.
    """
    kept = {}
    for leaf in expr.leaves:
        s: Any = leaf.storage
        if s.nbytes >= POOLED and sys.getrefcount(s) == HELD_BY_VARIABLE + len(holders[id(s)]):
            kept[id(s)] = s.nbytes
    return list(kept.values())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.lock.acquire,
        after_in_parent=LOCK.lock.release,
        after_in_child=LOCK.lock.release,
    )
ledger.before_reading.append(materialize_pending)
host.relievers.insert(0, materialize_pending)
