"""No test leaves a budget."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skimp._engine.budget import setting
from skimp._engine.memory.caching import pool


@pytest.fixture(autouse=True)
def no_budget_left() -> Iterator[None]:
    pool.empty_cache()
    yield
    setting.set_budget(None)
