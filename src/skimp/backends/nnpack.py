"""torch.backends.nnpack: not used."""

from __future__ import annotations

import contextlib
from typing import Any


def is_available() -> bool:
    """Whether convolutions use NNPACK."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Accepted; what was set before."""
    return (False,)


def flags(enabled: bool = False) -> contextlib.AbstractContextManager[Any]:
    """Accepted."""
    return contextlib.nullcontext()
