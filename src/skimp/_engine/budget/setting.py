"""The setting: how many bytes a program may have reserved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from skimp._engine.budget import (
    evictable,
    lending,
    recording,
    rematerializing,
    spill as files,
    telling,
)
from skimp._engine.budget.spending import Spending
from skimp._engine.budget.verify import checking
from skimp._engine.interrupts import insist, region
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp._engine.memory.sizes import parse_size
from skimp._kernels import scratch

VARIABLE: Final = "SKIMP_BUDGET"
ALWAYS: Final = "always"  # instead of a size: evict all that may go at each allocation, for tests
UNBOUNDED: Final = 1 << 60


def set_budget(
    size: int | str | None,
    *,
    spill: bool = True,
    spill_dir: str | None = None,
    verify: bool = False,
) -> None:
    """Hold the program to `size` bytes from now on, with the same results; None: no longer.

    Takes bytes or text: `"300MiB"`. Before an op allocates, bytes that are not in use are taken
    away until its result fits: written to a file in `spill_dir` (default: SKIMP_SPILL_DIR, or a
    temporary directory that is on a disk), which has no name, or dropped where making them again
    takes less time. They come back when somebody looks. With `verify`, checksums are compared then.

    OSError: there is no directory on a disk. OutOfMemoryError comes from the op that does not fit.

    Raises: ValueError for text that is no size, and below 0.
    """
    if size is None:
        obey(None)
        return
    always = size == ALWAYS
    spending = Spending(UNBOUNDED if always else parse_size(size), spill, spill_dir, always)
    if spill:
        files.file(spill_dir)  # fails now, not in the middle of an op
    spending.verifies = verify
    obey(spending)


def obey(spending: Spending | None) -> None:
    before: Any = host.budget
    if before is None:
        telling.floor.forget()
    else:
        before.repetition.forget()
    checking[:] = [None] if spending is not None and spending.verifies else []
    if spending is None:
        recording.end()
    else:
        spending.repetition.forget_all()
        spending.begin()
    host.spend(spending)
    scratch.supply(None if spending is None else lending.LENDER)
    if spending is not None:
        pool.attend()
        spending.make_room(0)
        spending.clock.begin()
        pool.shrink()


def get_budget() -> int | None:
    """The budget in bytes, or None."""
    return None if host.budget is None else host.budget.nbytes


@region
def budget(
    size: int | str | None,
    *,
    spill: bool = True,
    spill_dir: str | None = None,
    verify: bool = False,
) -> Iterator[None]:
    """`set_budget` for a region; the budget that was obeyed before is obeyed after it.

    Where regions end in the order in which they began (generators, threads), the last one's holds
    until its end.
    """
    mine = _Region(host.budget)
    try:
        _open.append(mine)
        set_budget(size, spill=spill, spill_dir=spill_dir, verify=verify)
        yield
    finally:
        insist(_leave, mine)


class _Region:
    """One that is open, and the budget that is obeyed after it."""

    def __init__(self, before: Any) -> None:
        self.before = before


_open: Final[list[_Region]] = []  # in the order in which they began


def _leave(mine: _Region) -> None:
    if mine not in _open:  # an interrupt came first
        return
    after = _open[_open.index(mine) + 1 :]
    if after:
        after[0].before = mine.before
    else:
        obey(mine.before)
    _open.remove(mine)


evictable.rematerialize.append(rematerializing.rematerialize)
if text := os.environ.get(VARIABLE):
    try:
        set_budget(text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None
