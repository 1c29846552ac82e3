"""A storage whose bytes may be away: how they go, and how they come back.

Storages become one of these while a budget is obeyed (`enrol`), by another class: those of a
program without a budget know nothing of it.

What may go is what nobody reads or writes now. Nothing announces that: an op that works on bytes
holds an ndarray over them, and so does whoever got `numpy()` or DLPack. So the block's references
are counted, with the block out of reach meanwhile: whoever wants it then waits for the lock.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import numpy as np

from skimp._engine.budget.spill import Place
from skimp._engine.memory import storage as storages
from skimp._engine.memory.ledger import host
from skimp._engine.memory.rematerialize import Followed
from skimp._engine.memory.spans import as_bytes
from skimp._engine.memory.storage import Storage

Array = np.ndarray[Any, Any]
_BYTE = np.dtype(np.uint8)
_getrefcount = sys.getrefcount


class Evictable(Followed):
    """A storage known to a budget. Its bytes are in `block`, promised, or in a file (`place`)."""

    place: Place | None = None  # the bytes, or a copy of them
    used: float = 0.0  # when somebody last asked for the bytes
    handed_out: bool = False  # their address

    def flat(self) -> Array:
        """All bytes as one uint8 array; has them back. Nothing is remembered: each look counts."""
        while (block := self.block) is None:
            if self.deferred is not None:
                self.materialize()
            else:
                bring_back(self)
        self.used = perf_counter()
        if block.dtype != _BYTE or block.ndim != 1:
            block = as_bytes(block)
        return block if self.size is None else block[: self.size]

    def address(self) -> int:
        """Where the bytes begin, which they do from now on."""
        self.handed_out = True
        return super().address()

    def will_write(self) -> None:
        """Before the bytes change: a copy in a file is none any more."""
        super().will_write()
        if self.place is not None:
            self.flat()
            self.place = None


def enrol(s: Any) -> bool:
    """Let a budget take the bytes of a storage away; False where that can't be."""
    kind = type(s)
    if kind is Evictable:
        return True
    if (kind is not Storage and kind is not Followed) or s.external:
        return False
    s.__class__ = Evictable
    s._flat = None
    s.used = perf_counter()
    return True


def leaf_arrays(s: Storage) -> list[Array]:
    """What a promise reads, all of it there: to be kept while room is made for its result."""
    deferred = s.deferred
    return [] if deferred is None else [leaf.array for leaf in deferred.leaves]


# -- going ----------------------------------------------------------------------------------------


def evict(s: Evictable, write: Any) -> bool:
    """Take a storage's bytes away, after `write(bytes)` has given a place where they are; False
    where somebody has them. Called under the storages' lock.
    """
    block: Any = s.block
    if block is None or s.handed_out or s.nbytes < 0:
        return False
    if s.size is None:
        s.size = block.nbytes
    gone = False
    s.block = None  # from here on nobody else comes to it
    try:
        leaves = _leaves_on(s)
        root: Any = block.base if isinstance(block.base, np.ndarray) else None
        # `block` and the call's argument; of what it is a view of, its `base` as well
        others = _getrefcount(block) - 2 if root is None else _getrefcount(root) - 3
        if root is not None and _getrefcount(block) > 2:
            return False
        if others > len(leaves) or any([_getrefcount(leaf.array) > 2 for leaf in leaves]):
            return False
        root = None
        if s.place is None:
            s.place = write(as_bytes(block)[: s.size])
        for leaf in leaves:
            _take_array(leaf, block)
        nbytes = s.nbytes
        s.nbytes = -1
        gone = True
        host.dropped = host.dropped + 1
        host.freed = host.freed + nbytes  # one step with the four lines above
    finally:
        if not gone:
            s.block = block
    if host.watched:
        host.fell(nbytes, id(s))
    return True


def _leaves_on(s: Storage) -> list[Any]:
    """The leaves of waiting promises that have an array over the storage's bytes."""
    found: dict[int, Any] = {}
    for ref in s.readers or ():
        reader = ref()
        expr = None if reader is None else reader.deferred
        if expr is not None:
            for leaf in expr.leaves:
                if leaf.storage is s and _has_array(leaf):
                    found[id(leaf)] = leaf
    return list(found.values())


def _has_array(leaf: Any) -> bool:
    try:
        object.__getattribute__(leaf, "array")
    except AttributeError:
        return False
    return True


def _take_array(leaf: Any, block: Array) -> None:
    array = leaf.array
    start = array.__array_interface__["data"][0] - block.__array_interface__["data"][0]
    shape, dtype, strides = array.shape, array.dtype, array.strides

    def again(leaf: Any) -> Array:
        made: Array = np.ndarray(shape, dtype, leaf.storage.flat(), start, strides)
        leaf.array = made
        return made

    leaf.again = again
    del leaf.array


# -- coming back ----------------------------------------------------------------------------------


def bring_back(s: Evictable) -> None:
    """Have the bytes again. OSError: the file can't be read. OutOfMemoryError: no room for them."""
    with storages.LOCK():
        if s.block is not None or s.deferred is not None:
            return
        place = s.place
        if place is None:
            raise RuntimeError("a storage without bytes: nothing was noted of how it was made")
        nbytes = len(s)
        block = storages.taken(nbytes, s)
        try:
            place.read(block[:nbytes])
            s.place = None  # what is written to it before its op is done is not announced
            s.block = block
        except BaseException:
            if s.block is None:
                s.place = place
                host.refund(s)
            raise
