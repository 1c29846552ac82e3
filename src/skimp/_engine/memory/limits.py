"""A limit on what may be allocated, and who knows what is live by line while there is one."""

from __future__ import annotations

from skimp._engine.memory import allocator
from skimp._engine.memory.caching import pool
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import Ledger, host
from skimp._engine.memory.sizes import parse_size
from skimp.errors import Live


class Tenants:
    """The observer that remembers who holds what: the message of a refusal needs it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: dict[int, tuple[int, Site]] = {}

    def allocated(self, owner_id: int, nbytes: int, site: Site) -> None:
        self._held[owner_id] = (nbytes, site)

    def freed(self, owner_id: int, nbytes: int) -> None:
        self._held.pop(owner_id, None)  # None: it is older than the limit

    def copied(self, *_: object) -> None:
        """Copies hold nothing; the allocations that they make are told on their own."""

    def forget(self) -> None:
        self._held.clear()

    def by_line(self) -> list[Live]:
        """What is live, by line, largest first; it adds up to what the ledger has allocated."""
        totals: dict[Site | None, tuple[int, int]] = {}
        for nbytes, site in list(self._held.values()):
            total, times = totals.get(site, (0, 0))
            totals[site] = (total + nbytes, times + 1)
        older = self._ledger.allocated - sum(total for total, _ in totals.values())
        if older > 0:
            totals[None] = (older, 0)
        lines = [Live(site, total, times) for site, (total, times) in totals.items() if total]
        return sorted(lines, key=lambda one: -one.bytes)


_tenants = Tenants(host)


def set_limit(limit: int | str | None) -> None:
    """Refuse (OutOfMemoryError) to have more than `limit` bytes reserved; None: no limit.

    Takes bytes or text: `"2GiB"`, `"500MB"`. What is reserved is what tensors asked for, what
    rounding adds, and what is cached, which goes back to the system before anything is refused.
    While there is a limit the line of every allocation is looked up, so that a refusal can say who
    holds what.

    Raises: ValueError for text that is no size, and below 0.
    """
    limited = None if limit is None else parse_size(limit)
    if limited is None:
        host.unwatch(_tenants)
        host.live_by_line = None
        _tenants.forget()
    elif host.limit is None:
        host.live_by_line = _tenants.by_line
        host.watch(_tenants)
    host.limit = limited
    if limited is not None:
        pool.trim(limited)


def get_limit() -> int | None:
    """The limit in bytes, or None."""
    return host.limit


def set_per_process_memory_fraction(fraction: float, device: object = None) -> None:
    """The limit as a part of the machine's memory (PyTorch's function of the same name).

    Raises: TypeError for what is no float, ValueError outside of 0 to 1.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    set_limit(int(allocator.total_memory() * fraction))
