"""Locks that an exception of a signal handler's can't leave locked, for `with`; a fork's child has
those of other threads free.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

# CPython 3.14 looks for signals between what `__enter__` has done and the block of a `with`, whose
# lock stays locked for ever then; 3.15 doesn't any more. An exception of `acquire` may come when it
# has the lock or when it has not.
_LOSES = sys.version_info[:2] == (3, 14)


_made: weakref.WeakSet[Any] = weakref.WeakSet()


def reentrant() -> threading.RLock:
    """A lock that its thread may take again, by `with`."""
    made: threading.RLock = _kept()() if _LOSES else threading.RLock()
    _made.add(made)
    return made


def free_in_children(lock: Any) -> None:
    """Have another library's lock, which no thread holds that forks, be free in a fork's child."""
    _made.add(lock)


def _kept() -> Any:
    native: Any = type(threading.RLock())

    class Kept(native):  # type: ignore[misc]
        """Which functions of C leave, and a function with a handler enters."""

        __slots__ = ()

        def __enter__(self) -> bool:
            before = self._recursion_count()
            try:
                return bool(self.acquire())
            except BaseException:
                if self._recursion_count() > before:
                    self.release()
                raise

    return Kept


def _free_those_of_others() -> None:
    """In a fork's child, where the threads that held them do not exist."""
    for lock in list(_made):
        if not hasattr(lock, "_is_owned") or not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_free_those_of_others)
