"""What skimp raises of its own; otherwise it raises what PyTorch or Python has for the case.

SkimpError                  everything below; never raised itself
├── OutOfMemoryError        (RuntimeError)  a limit or the system refused bytes
└── CopyError               (RuntimeError)  a copy inside `no_copies()`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from skimp._engine.memory.call_site import Site


class SkimpError(Exception):
    """What all of skimp's own exceptions have in common."""


class AcceleratorError(RuntimeError):
    """For `except`: what PyTorch raises for errors of a device; there is none."""


class FatalError(Exception):
    """For `except`: what PyTorch raises where a process can't go on; nothing here does."""


class Live(NamedTuple):
    """What one line had allocated; `site` is None for what came before anybody listened."""

    site: Site | None
    bytes: int
    allocations: int


class OutOfMemoryError(SkimpError, RuntimeError):
    """Bytes were refused; all tensors are intact (PyTorch: torch.OutOfMemoryError).

    `requested` and `allocated` are bytes, `limit` is None where the system refused, `site` is the
    line and the op that asked, and `live` (largest first) is known while a limit is set.
    """

    def __init__(
        self,
        message: str = "",
        *,
        requested: int = 0,
        allocated: int = 0,
        limit: int | None = None,
        site: Site | None = None,
        live: Sequence[Live] = (),
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.allocated = allocated
        self.limit = limit
        self.site = site
        self.live = list(live)


class CopyError(SkimpError, RuntimeError):
    """An op had to copy where `no_copies()` forbids it; nothing was allocated."""
