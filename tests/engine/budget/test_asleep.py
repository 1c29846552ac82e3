"""What a step runs within a budget that nothing breaks: the short ways, as without one."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.memory import allocator
from skimp._engine.memory.caching import pool
from skimp.optim import fused
from tests.engine.budget.holding import MIB, held, numbers
from tests.support.frames import frames_of
from tests.support.running import default_mode

pytestmark = default_mode  # which way is the short one follows the mode


def test_an_optimizer_makes_large_updates_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter whose tensor keeps no array is looked at beside the others."""
    ones: list[None] = []
    monkeypatch.setattr(fused, "update", lambda *_: ones.append(None))
    net: Any = torch.nn.ParameterList([numbers(i, 1 << 18) for i in range(6)])
    other = copy.deepcopy(net)

    def step(net: Any) -> None:
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        for _ in range(2):
            for i, p in enumerate(net):
                p.grad = numbers(10 + i, 1 << 18)
            optimizer.step()

    step(net)
    with torch.memory.budget(held() + 64 * MIB):
        step(other)
    assert not ones
    assert [p.tolist() for p in net] == [p.tolist() for p in other]


def test_gradients_that_meet_are_added_by_one_call() -> None:
    net = torch.nn.LSTMCell(32, 128)
    x = numbers(1, 3 * 512 * 32).view(3, 512, 32)

    def step() -> None:
        net.zero_grad()
        h = c = torch.zeros(512, 128)
        for one in x:
            h, c = net(one, (h, c))
        (h * h).sum().backward()

    free = Counter(frames_of(step, warm=3))
    wanted = [p.grad.tolist() for p in net.parameters()]
    with torch.memory.budget(held() + 64 * MIB):
        within = Counter(frames_of(step, warm=3))
    assert within["_added_in_memory"] == free["_added_in_memory"] > 0
    assert [p.grad.tolist() for p in net.parameters()] == wanted


def test_small_tensors_whose_bytes_may_go_lend_their_arrays() -> None:
    """Also where no call is noted: beyond a plan's stretch of noting."""
    with torch.memory.budget("64MiB", spill=False):
        x, y = numbers(1, 1 << 15).view(2, -1), numbers(2, 1 << 15).view(2, -1)
    assert x._np is None
    with torch.memory.budget("64MiB"):
        found = frames_of(lambda: x * y, warm=3)
        made = (x * y).numpy()
    assert "on_small" in found
    assert "_compute" not in found
    assert np.array_equal(made, x.numpy() * y.numpy())


def test_a_formula_that_reads_what_no_budget_knows_holds_nothing() -> None:
    x = numbers(1, 1 << 16).view(64, -1).requires_grad_()

    def step() -> None:
        x.grad = None
        x.softmax(-1).sum().backward()

    with torch.memory.budget(held() + 64 * MIB):
        ran = frames_of(step, warm=3)
    assert not [name for name in ran if name.startswith("Working.")]


def test_the_heap_keeps_pages_that_are_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once given back they are read in again, fault by fault, in each step."""
    trims: list[None] = []
    monkeypatch.setattr(allocator, "trim", lambda: trims.append(None))

    def step(room: int) -> int:
        pool.empty_cache()
        trims.clear()
        with torch.memory.budget(held() + room):
            small = [numbers(i, 1 << 14) for i in range(64)]  # 4 MiB
            large = numbers(0, 4 << 18)
            del small
            numbers(1, 4 << 18)
            del large
        return len(trims)

    assert step(64 * MIB) == 0
    assert step(9 * MIB) > 0
