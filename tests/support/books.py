"""What tests of the ledger share: owners of bytes, an observer, threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import Ledger


class Owner:
    """What a storage is to the ledger, whose short path it takes as ledger.py states it."""

    site: Site | None = None

    def __init__(self, nbytes: int, book: Ledger) -> None:
        self.nbytes = -1
        self.book = book
        book.made = book.made + 1
        book.total = total = book.total + nbytes
        self.nbytes = nbytes
        if total - book.freed > book.ceiling:
            book.rise(nbytes, self)

    def __del__(self) -> None:
        book, n = self.book, self.nbytes
        if n >= 0:
            book.dropped = book.dropped + 1
            book.freed = book.freed + n
            if book.watched:
                book.fell(id(self), n)


class Log:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def allocated(self, owner_id: int, nbytes: int, site: Site) -> None:
        self.events.append(("allocated", owner_id, nbytes, site))

    def freed(self, owner_id: int, nbytes: int) -> None:
        self.events.append(("freed", owner_id, nbytes))

    def copied(
        self, nbytes: int, op: str, reason: str, site: Site, source: Any, forced: bool
    ) -> None:
        self.events.append(("copied", nbytes, op, reason, site))


def figures(book: Ledger) -> tuple[int, ...]:
    return (book.made, book.dropped, book.total, book.freed, book.peak)


def on_threads(work: Callable[[], None], count: int = 4) -> None:
    """Run `work` on several threads that change places as often as they can."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
