"""Copies from one storage to another: counted, told, and forbidden where nobody wants any.

An op that has to copy says so before it allocates: `copies.told(nbytes, "reshape", why, x)`. One
that writes over bytes that are there is no such copy: `written` tells who listens, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

from skimp._engine.interrupts import region
from skimp._engine.memory import call_site
from skimp._engine.memory.ledger import host
from skimp._engine.memory.sizes import exact
from skimp.errors import CopyError

_forbidden: Final = ContextVar("skimp.no_copies", default=False)


def told(nbytes: int, op: str, reason: Callable[[], str], source: Any) -> None:
    """Count a copy of the tensor `source` that is about to be made; `reason` says why, if somebody
    listens: `reshape of a tensor with strides (1, 3)`.

    CopyError inside `no_copies()`.
    """
    if _forbidden.get():
        raise CopyError(_refusal(nbytes, op, reason()))
    host.copy(nbytes, op, reason() if host.watched else "", source)


def small(nbytes: int, op: str, reason: Callable[..., str], source: Any, *more: Any) -> None:
    """`told` of what is made often: `reason` is asked with the source, and `more`."""
    if host.watched or _forbidden.get():
        told(nbytes, op, lambda: reason(source, *more), source)
    else:
        host.copies = host.copies + 1
        host.copied = host.copied + nbytes


def written(nbytes: int, source: Any) -> None:
    """Tell of `source`, whose elements are about to be written over others, if somebody listens."""
    if host.watched:
        host.tell_copied(nbytes, "", "written over what was there", source, False)


@region
def no_copies() -> Iterator[None]:
    """Inside, an op that has to copy raises CopyError, a RuntimeError, before it allocates.

    Holds for the thread (or the asynchronous task) that entered it.
    """
    before = _forbidden.get()
    try:
        _forbidden.set(True)
        yield
    finally:
        _forbidden.set(before)


def _refusal(nbytes: int, op: str, reason: str) -> str:
    site = call_site.find()
    where = f" at {site.filename}:{site.lineno}" if site.lineno else ""
    return (
        f"no_copies: {op}{where} has to copy {exact(nbytes)}: {reason}. "
        "Copy before it, or change what makes the copy necessary."
    )
