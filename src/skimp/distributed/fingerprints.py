"""TORCH_DISTRIBUTED_DEBUG=DETAIL: before each collective the ranks compare what they are about to
do, so that a mismatch is an error that names both lines, and not a hang.
"""

from __future__ import annotations

import enum
import os
from typing import Any

import numpy as np

from skimp.distributed.work import Label, Work

SIZE = 1024  # bytes of a description


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
    """What TORCH_DISTRIBUTED_DEBUG says: OFF, INFO or DETAIL."""
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise ValueError(
            f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, not {name}"
        )
    set_debug_level(DebugLevel[name])


def wanted() -> bool:
    """Whether collectives are compared."""
    return get_debug_level() is DebugLevel.DETAIL


def compare(group: Any, label: Label) -> None:
    """RuntimeError on every rank unless all are about to do the same."""
    work = Work(group, label)
    text = f"{label}\n{work.where()}"
    mine = np.frombuffer(text.encode()[:SIZE].ljust(SIZE, b"\0"), np.uint8)
    every = np.empty((group.size(), SIZE), np.uint8)
    work._requests = [group.checks().Iallgather(mine, every)]
    work._site = None
    work.wait()
    found = [bytes(row).rstrip(b"\0").decode(errors="replace").split("\n") for row in every]
    if len({what for what, _ in found}) > 1:
        told = "; ".join(
            [f"rank {r} is in {where}" for r, (_, where) in zip(group.ranks, found, strict=True)]
        )
        raise RuntimeError(
            f"Detected mismatch between collectives on ranks (number {group.sequence}): {told}"
        )
