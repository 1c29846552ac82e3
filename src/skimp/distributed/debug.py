"""TORCH_DISTRIBUTED_DEBUG: how much is checked and said."""

from __future__ import annotations

import enum
import os


class DebugLevel(enum.Enum):
    """How much is checked and said."""

    OFF, INFO, DETAIL = range(3)


_level: list[DebugLevel] = []


def get_debug_level() -> DebugLevel:
    """How much is checked and said: TORCH_DISTRIBUTED_DEBUG, or what was set since."""
    if not _level:
        set_debug_level_from_env()
    return _level[0]


def set_debug_level(level: DebugLevel) -> None:
    """Check and say so much from now on, on all ranks."""
    _level[:] = [level]


def set_debug_level_from_env() -> None:
    """What TORCH_DISTRIBUTED_DEBUG says: OFF, INFO or DETAIL.

    Raises: ValueError for another word.
    """
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise ValueError(
            f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, not {name}"
        )
    set_debug_level(DebugLevel[name])


def wanted() -> bool:
    """Whether collectives are compared."""
    return get_debug_level() is DebugLevel.DETAIL
