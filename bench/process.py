"""This process's memory, as the system counts it (Linux; elsewhere the figures are None)."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
LINUX = sys.platform == "linux"


def resident() -> int | None:
    """Bytes of this process in memory now."""
    return _line("VmRSS:")


def peak() -> int | None:
    """The most that `resident` was since `restart_peak`."""
    return _line("VmHWM:")


def restart_peak() -> None:
    """Give freed memory back to the system, and follow the peak from here."""
    gc.collect()
    if LINUX:
        ctypes.CDLL(None).malloc_trim(0)
        CLEAR.write_text("5")


def _line(key: str) -> int | None:
    if not LINUX:
        return None
    line = next(s for s in STATUS.read_text().splitlines() if s.startswith(key))
    return int(line.split()[1]) * 1024
