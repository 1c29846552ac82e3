"""What tests of budgets are made of: tensors of 1 MiB, and whether their bytes are there."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

import skimp as torch
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host

MIB = 1 << 20
N = 1 << 18  # elements of a tensor of 1 MiB


def numbers(seed: int, n: int = N) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).random(n, np.float32)).clone()


def is_away(t: Any) -> bool:
    s = t._storage
    return s.block is None and s.deferred is None


def held() -> int:
    """Bytes above what was there when the test began are what a budget is about."""
    gc.collect()
    return max(host.allocated, pool.reserved)
