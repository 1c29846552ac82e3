"""This process, as the system counts its memory (Linux; elsewhere the figures are None)."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
MACHINE = Path("/proc/meminfo")
CLEAR = Path("/proc/self/clear_refs")
LINUX = sys.platform == "linux"


def resident() -> int | None:
    """Bytes of this process in memory now."""
    return _line(STATUS, "VmRSS:")


def peak() -> int | None:
    """The most that `resident` was since `restart_peak`."""
    return _line(STATUS, "VmHWM:")


def available() -> int | None:
    """Bytes that new processes of the machine may take before it becomes short of memory."""
    return _line(MACHINE, "MemAvailable:")


def restart_peak() -> None:
    """Give freed memory back to the system, and follow the peak from here."""
    gc.collect()
    if LINUX:
        ctypes.CDLL(None).malloc_trim(0)
        CLEAR.write_text("5")


def die_with_parent() -> None:
    """Be killed when the process that started this one ends: a stopped one would stay for ever."""
    if LINUX:
        PR_SET_PDEATHSIG = 1  # prctl(2)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _line(file: Path, key: str) -> int | None:
    if not LINUX:
        return None
    line = next(s for s in file.read_text().splitlines() if s.startswith(key))
    return int(line.split()[1]) * 1024
