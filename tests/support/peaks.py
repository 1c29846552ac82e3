"""The most that Python and NumPy had at once beyond what they had before, as `tracemalloc` sees."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_of(call: Callable[[], object]) -> int:
    """Bytes; what the ledger does not see is among them, the pool's blocks are not."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
