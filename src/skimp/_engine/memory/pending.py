"""The storages that are deferred: which they are, who reads what, when they must materialize."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from skimp._engine.eval.expr import Expr, walk
from skimp._engine.memory import ledger
from skimp._engine.memory.keeping import watch
from skimp._engine.memory.ledger import host
from skimp._kernels.threads import Guard
from skimp.errors import OutOfMemoryError

if TYPE_CHECKING:
    from skimp._engine.memory.storage import Storage

# held while a deferred expression is materialized or replaced; a fork's child gets it free
LOCK = Guard()
WAITING: dict[int, weakref.ref[Storage]] = {}  # storages with a deferred expression, oldest first


def remember(s: Storage) -> None:
    """A deferred expression that could not be computed still waits."""
    WAITING[id(s)] = weakref.ref(s)
    watch.stop()


def register(s: Storage, expr: Expr, waits: bool = True) -> None:
    """`s` is deferred, by `expr`: what that reads knows of it, and that it waits, if it does."""
    ref, key = weakref.ref(s), id(s)
    with LOCK():
        known = WAITING.get(key)
        if known is not None and known() is not s:  # one that died, whose place is taken
            WAITING.pop(key, None)
            known = None
        if waits and known is None:
            WAITING[key] = ref
        for leaf in expr.leaves:
            source: Any = leaf.storage
            readers = source.readers
            if readers is None:
                source.readers = [ref]
                continue
            if readers[-1]() is s:
                continue
            readers += (ref,)
            if len(readers) <= 64:
                continue
            readers[:] = _waiting(readers)
        s.deferred = expr
        if waits:
            watch.add(expr.leaves)  # later: who looks meanwhile sees it wait


def _waiting(refs: list[weakref.ref[Storage]]) -> list[weakref.ref[Storage]]:
    return [ref for ref in refs if (s := ref()) is not None and s.deferred is not None]


def alive(refs: list[weakref.ref[Storage]] | None) -> Iterator[Storage]:
    """The storages of these references that still are."""
    return (s for ref in refs or () if (s := ref()) is not None)


def materialize_pending() -> None:
    """Materialize every expression, oldest first: what `synchronize()` does."""
    while waiting := [s for s in pending() if not s.spare]:
        with LOCK():
            for s in waiting:
                s.materialize()


def materialize_what_fits() -> None:
    """The same for a counter: what there is no room for still waits, and nobody was refused it."""
    ooms = host.ooms
    refused: list[Storage] = []
    while waiting := [s for s in pending() if not (s.spare or s in refused)]:
        refused += [s for s in waiting if not _has_room(s)]
    host.ooms = ooms


def _has_room(s: Storage) -> bool:
    try:
        s.materialize()
    except OutOfMemoryError:
        return False
    return True


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
        if s.deferred is not None and _read_by(s.deferred, watch.look(_pending())):
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
    """Before the pool is asked, if the watch sees one alone: expressions that keep alive what eager
    execution would have freed materialize; whether any did.

    An expression may stay if it keeps alive nothing of its own, or just the one block that its
    result will take over.
    """
    done = False
    stays: set[int] = set()  # what is kept alive for a result that will take its block
    with LOCK():
        waiting = _pending()
        alone = watch.look(waiting)
        for s in waiting if alone else ():
            expr = s.deferred
            if expr is None:
                continue
            kept = _read_by(expr, alone)
            donor: Any = s.donor(expr) if kept == 1 else None
            if donor is not None and not donor.spare:  # at that others can get
                stays |= {id(donor)}
            del expr
            if kept and donor is None:
                s.materialize()
                done = True
                alone = watch.look(_pending())
                if not alone:
                    break
            del donor
        if stays:
            watch.leave(waiting, stays)
    return done


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
ledger.before_counting.append(materialize_what_fits)
host.relievers.insert(0, materialize_pending)
