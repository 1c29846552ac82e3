"""Scratch memory of kernels within a budget: the pool lends it, and it counts as rounding does.

A buffer stays with its thread, so a step that repeats asks for none. What no kernel uses is dropped
before any storage goes: it costs the 4 us that the pool takes, for the pages stay.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from skimp._engine.budget.statistics import counts
from skimp._engine.memory.caching import Array, pool
from skimp._engine.memory.ledger import host
from skimp._engine.memory.pending import LOCK
from skimp._kernels.scratch import Lender
from skimp._kernels.threads import Guard
from skimp.errors import OutOfMemoryError

# of who makes room: several threads of one op may, for each passes the storages' lock that it has
ROOM = Guard()


def lend(nbytes: int) -> Array:
    """A buffer for a kernel. Where nothing may go, it is had beyond the budget for as long as it is
    used, and counted as such: a kernel may have begun to write.
    """
    found = spare(nbytes)
    if found is not None:
        return found
    counts.exceeded(host.reserved_for(pool.rounded(nbytes)) - (host.bound or 0))
    return np.empty(nbytes, np.uint8)


def spare(nbytes: int) -> Array | None:
    """A buffer, once there is room for it; None where nothing may go."""
    budget = host.budget
    size = pool.rounded(nbytes)
    with LOCK(), ROOM():
        if host.fits(size) or (budget is not None and budget.make_room(size)):
            try:
                return pool.lend(nbytes)
            except OutOfMemoryError:  # others have taken the room
                host.look()
    return None


def demand(nbytes: int) -> Array:
    """A buffer, where there was none to spare, for a kernel that has written nothing yet.
    OutOfMemoryError: nothing may go, or the system refuses what would be within the budget.
    """
    size = pool.rounded(nbytes)
    while host.relieve(size):
        found = spare(nbytes)
        if found is not None:
            return found
        if host.fits(size):
            raise host.refusal(size)
    raise host.refusal(size, limit=host.bound)


LENDER: Final = Lender(spare, lend, demand)
