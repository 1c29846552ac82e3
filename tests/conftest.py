"""A test leaves no bytes behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples every time: a change is judged by its own failures.
# HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def no_bytes_left() -> Iterator[None]:
    """What is allocated after a test is what was allocated before it."""
    from skimp.memory.ledger import host

    before = host.allocated
    yield
    if host.allocated != before:
        gc.collect()
    assert host.allocated == before, f"the test left {host.allocated - before} bytes allocated"
