"""A test leaves no bytes behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_bytes_left() -> Iterator[None]:
    """What is allocated after a test is what was allocated before it."""
    from skimp.memory.ledger import host

    before = host.allocated
    yield
    if host.allocated != before:
        gc.collect()
    assert host.allocated == before, f"the test left {host.allocated - before} bytes allocated"
