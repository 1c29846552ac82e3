"""Raw memory from the system."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from skimp._engine.memory import allocator

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize("nbytes", [4 * KIB, MIB, 2 * MIB, 2 * MIB + 4 * KIB, 33 * MIB])
def test_raw_memory_is_zero_writable_and_aligned(nbytes: int) -> None:
    array = np.frombuffer(allocator.fresh(nbytes), np.uint8)
    assert array.nbytes == nbytes
    assert not array.any()
    array[[0, -1]] = 1
    assert array.ctypes.data % (2 * MIB if nbytes >= 2 * MIB else 4 * KIB) == 0


@pytest.mark.parametrize("nbytes", [0, 1, 4 * KIB, 256 * KIB - 1, 256 * KIB, 3 * MIB + 5])
def test_clear_makes_these_bytes_zero_and_no_others(nbytes: int) -> None:
    around = np.full(nbytes + 200, 7, np.uint8)
    allocator.clear(around[99 : 99 + nbytes])
    assert not around[99 : 99 + nbytes].any()
    assert (around[:99] == 7).all()
    assert (around[99 + nbytes :] == 7).all()


def test_the_machine_has_memory() -> None:
    assert 0 < allocator.free_memory() <= allocator.total_memory()


def resident(memory: memoryview) -> int:
    """KiB of the mapping around an address that have pages, by the system's own account."""
    at = np.frombuffer(memory, np.uint8, 1).ctypes.data
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if " " in line and (ends := re.match("([0-9a-f]+)-([0-9a-f]+) ", line)):
            inside = int(ends[1], 16) <= at < int(ends[2], 16)
        elif line.startswith("Rss:") and inside:
            return int(line.split()[1])
    raise AssertionError("no such mapping")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system tells of no mapping")
def test_the_first_bytes_that_are_used_cost_no_huge_page() -> None:
    memory = allocator.reserve(64 * MIB)
    assert memory is not None
    memory[0] = memory[MIB] = 1
    assert resident(memory) <= 128  # two pages, of whatever size the machine has
