"""What goes with what went, and what is never made for itself when it is made again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import host
from tests.engine.budget.holding import MIB, is_away, numbers
from tests.engine.budget.test_recipes import drop
from tests.support.running import default_mode

KEPT: list[Any] = []  # what results were made from
# what is noted follows the mode
pytestmark = [default_mode, pytest.mark.usefixtures("obeyed")]


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    KEPT.clear()


def made() -> dict[str, int]:
    """How often each op was run again."""
    found: dict[str, int] = {}
    for one in counts.again:
        found[one.op] = found.get(one.op, 0) + one.times
    return found


def sorted_halves() -> tuple[Any, Any, list[Any]]:
    """The two results of one op, of 1 and 2 MiB, and what they were."""
    x = numbers(0).view(512, 512)
    KEPT.append(x)
    values, places = x.sort(1)
    return values, places, [values.tolist(), places.tolist()]


def test_results_of_one_op_go_together_and_come_back_by_one_run() -> None:
    values, places, wanted = sorted_halves()
    budget: Any = host.budget
    counts.reset()
    before = host.allocated
    values._storage.used = places._storage.used  # as if both were looked at at once
    assert budget._evict(values._storage)
    assert is_away(values)
    assert is_away(places)
    assert host.allocated == before - 3 * MIB
    assert [values.tolist(), places.tolist()] == wanted
    assert host.allocated == before
    assert sum(made().values()) == 1


def test_what_was_just_used_or_is_needed_stays() -> None:
    values, places, _ = sorted_halves()
    budget: Any = host.budget
    values._storage.used -= 100
    assert budget._evict(values._storage)
    assert not is_away(places)
    values, places, _ = sorted_halves()
    later = places.cumsum(0)
    assert drop(later)
    assert budget._evict(values._storage)
    assert not is_away(places)  # `later` is made from it
    del later


def test_a_result_whose_op_is_run_again_anyway_costs_nothing_to_have_back() -> None:
    values, places, _ = sorted_halves()
    recipe = values._storage.recipe[0]
    assert recipe is places._storage.recipe[0]
    assert not recipe.is_due(places._storage)
    assert drop(values)
    assert recipe.is_due(places._storage)
    values.sum()
    assert not recipe.is_due(places._storage)


def test_expressions_that_nobody_has_are_not_made_for_themselves() -> None:
    """Three ops made apart, as each result was looked at, and again in one go, in 1 MiB."""
    x = numbers(3)
    y = x * 2
    y.cumsum(0)
    z = y + 1
    z.cumsum(0)
    last = z.sin()
    last.cumsum(0)
    wanted = last.tolist()
    del y, z
    assert drop(last)
    counts.reset()
    torch.memory.reset_peak_memory_stats()
    before = host.allocated
    assert last.tolist() == wanted
    assert host.peak == host.allocated == before + MIB
    assert made() == {"mul": 1, "add": 1, "sin": 1}


@pytest.mark.parametrize("which", [0, 1])
def test_one_result_of_an_lstms_cell_is_made_of_the_others_and_not_by_the_cell(which: int) -> None:
    cell = torch.nn.LSTMCell(8, 256)
    results = cell(torch.randn(512, 8))  # 512 KiB each; the graph keeps the gates, 2 MiB
    wanted = [one.detach().tolist() for one in results]
    budget: Any = host.budget
    counts.reset()
    assert budget._evict(results[which]._storage)
    assert not is_away(results[1 - which])
    assert [one.detach().tolist() for one in results] == wanted
    assert counts.rematerialized_bytes == MIB // 2


def test_an_lstms_cell_is_made_again_with_all_of_its_results_away() -> None:
    cell = torch.nn.LSTMCell(8, 256)
    h, c = cell(torch.randn(512, 8))
    kept = h.grad_fn
    wanted = h.detach().tolist(), c.detach().tolist()
    budget: Any = host.budget
    owners = [s for ref in budget.known.values() if (s := ref()) is not None and s.recipe]
    assert all([budget._evict(s) for s in owners if s.op == "_lstm_step"])
    assert is_away(h)
    assert is_away(c)
    assert (h.detach().tolist(), c.detach().tolist()) == wanted
    assert kept is not None
