"""Locks that an exception of a signal handler's can't leave locked, for `with`."""

from __future__ import annotations

import sys
import threading
from typing import Any

# CPython 3.14 looks for signals between what `__enter__` has done and the block of a `with`, whose
# lock stays locked for ever then; 3.15 doesn't any more. An exception of `acquire` may come when it
# has the lock or when it has not.
_LOSES = sys.version_info[:2] == (3, 14)


def reentrant() -> threading.RLock:
    """A lock that its thread may take again, by `with`."""
    return _kept()() if _LOSES else threading.RLock()


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
