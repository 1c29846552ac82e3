"""`--verify`: a checksum of bytes that go, compared when they are back."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

from skimp._engine.memory.spans import as_bytes

checking: Final[list[None]] = []  # an item while it is wanted


class Different(RuntimeError):
    """Bytes came back as others: their op is not deterministic, or the disk fails."""


def note(s: Any, block: Any) -> None:
    """Remember the bytes of a storage that are about to go."""
    if checking:
        s.checksum = _of(block, s.size)


def compare(s: Any, how: Callable[[], str]) -> None:
    """Look whether they are the same. Different: they are not; `how` tells how they came back."""
    expected = s.checksum
    if expected is None:
        return
    s.checksum = None
    if _of(s.block, len(s)) != expected:
        raise Different(
            f"{len(s)} bytes came back as others than they went, {how()}"
            + (f" ({s.made_at})" if s.made_at is not None else "")
        )


def _of(block: Any, size: int) -> int:
    return zlib.crc32(as_bytes(block)[:size])  # type: ignore[arg-type]
