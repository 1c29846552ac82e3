"""No test leaves a budget, and none is warned of how long it takes on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import skimp as torch
from skimp._engine.budget import setting, telling
from skimp._engine.memory.caching import pool


@pytest.fixture(autouse=True)
def no_budget_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(telling, "_PATIENCE", float("inf"))
    pool.empty_cache()
    yield
    setting.set_budget(None)


@pytest.fixture
def obeyed() -> Iterator[None]:
    """A budget that nothing reaches, under which recipes are noted."""
    with torch.memory.budget("64GiB", spill=False):
        yield
