"""TORCH_DISTRIBUTED_DEBUG=DETAIL: before each collective the ranks compare what they are about to
do, so that a mismatch is an error that names both lines, and not a hang.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp.distributed.work import Label, Work

SIZE = 1024  # bytes of a description


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
