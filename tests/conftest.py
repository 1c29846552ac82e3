"""A test leaves no bytes behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time: a change is judged by its own failures.
# HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


# What these test does not depend on the mode: commands, pages, stubs and other libraries; functions
# of arrays and of integers that know no tensors. They run in the default mode only
# (SKIMP_DEFER=auto, or not set), and the rest of the suite in all three.
ONCE = frozenset(
    f"test_{name}.py"
    for name in (
        *("bench", "beside", "check", "cli", "compat", "docs", "imports", "libraries", "report"),
        *("stubs", "tensorboard"),
        *("allocator", "draws", "kernels", "layout", "pool", "special_kernels"),
    )
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a file (None: pytest decides)."""
    once = os.environ.get("SKIMP_DEFER", "auto") != "auto"
    return True if once and collection_path.name in ONCE else None


@pytest.fixture(autouse=True)
def no_bytes_left() -> Iterator[None]:
    """What is allocated after a test is what was allocated before it."""
    from skimp.memory.ledger import host

    before = host.allocated
    yield
    if host.allocated != before:
        gc.collect()
    assert host.allocated == before, f"the test left {host.allocated - before} bytes allocated"
