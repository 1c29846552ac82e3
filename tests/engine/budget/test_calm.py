"""A program that does not repeat, within a budget without a file from which nothing goes."""

from __future__ import annotations

from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import host
from tests.engine.budget.holding import MIB, held
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted follows the mode


class Chain:
    """A layer as often as a step says; `noted`: tensors of the last step that had a recipe."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(256, 256)
        self.x = torch.randn(1024, 256)
        self.noted = 0

    def step(self, times: int) -> float:
        self.layer.zero_grad()
        h, self.noted = self.x, 0
        for _ in range(times):
            h = torch.nn.functional.layer_norm(self.layer(h).softmax(-1), (256,))
            self.noted += getattr(h._storage, "recipe", None) is not None
        loss = h.square().mean()
        loss.backward()
        with torch.no_grad():
            self.layer.weight -= 0.1 * self.layer.weight.grad
        return float(loss.item())


TIMES = [5, 4, 7, 3, 6, 8, 2]  # no step is like another one


@pytest.fixture(name="wanted")
def _wanted() -> Any:
    """Losses without a budget, and the most bytes that were held."""

    def found(times: list[int]) -> tuple[list[float], int]:
        chain, before = Chain(), host.allocated
        torch.memory.reset_peak_memory_stats()
        return [chain.step(n) for n in times], host.peak - before

    return found


def test_it_is_noted_no_more_where_nothing_goes(wanted: Any) -> None:
    losses, peak = wanted(TIMES)
    chain, noted = Chain(), []
    with torch.memory.budget(host.allocated + 2 * peak, spill=False):
        counts.reset()
        for n, loss in zip(TIMES, losses, strict=True):
            assert chain.step(n) == loss
            noted.append(chain.noted)
        assert counts.evictions == 0
    assert noted == [*TIMES[:5], 0, 0]


def test_it_is_noted_from_where_little_room_is_left(wanted: Any) -> None:
    """So a step that holds more than those before runs as well; after it, all is noted again."""
    times = [*TIMES[:5], 2, 14, 9]
    losses, _ = wanted(times)
    _, most = wanted(times[:6])
    chain, noted = Chain(), []
    with torch.memory.budget(host.allocated + most + 2 * MIB, spill=False):
        for n, loss in zip(times, losses, strict=True):
            assert chain.step(n) == loss
            assert held() <= host.budget.nbytes  # type: ignore[union-attr]
            noted.append(chain.noted)
    assert noted[:6] == [*TIMES[:5], 0]
    assert 0 < noted[6] < 14
    assert noted[7] == 9
