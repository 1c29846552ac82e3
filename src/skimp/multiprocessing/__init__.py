"""torch.multiprocessing: the standard library's, in which tensors travel in shared memory.

Importing skimp is enough for that: plain `multiprocessing` hands tensors over in the same way.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
import sys
from multiprocessing import *  # noqa: F403
from typing import TYPE_CHECKING as _TYPE_CHECKING

from skimp._compat.modules import listed as _listed, lookup as _lookup

if _TYPE_CHECKING:  # rows of names.txt: loaded when a program names them
    from skimp.multiprocessing.spawning import (
        ProcessContext,
        ProcessExitedException,
        ProcessRaisedException,
        spawn,
        start_processes,
    )

__all__ = [
    "ProcessContext", "ProcessExitedException", "ProcessRaisedException",
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip

__all__ += _multiprocessing.__all__
_HOME = __name__
__getattr__ = _lookup(_HOME)
_STRATEGIES = {"file_descriptor", "file_system"} if sys.platform == "linux" else {"file_system"}


def get_all_sharing_strategies() -> set[str]:
    """The names that PyTorch has for ways to share."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """There is one way: descriptors of anonymous files."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted: every name means the one way.

    Raises: AssertionError for a name that PyTorch has not.
    """
    if new_strategy not in _STRATEGIES:
        raise AssertionError(
            f"unknown sharing strategy {new_strategy!r}; it is one of {sorted(_STRATEGIES)}"
        )


def __dir__() -> list[str]:
    return _listed(_HOME, globals())
