"""A gradient goes last by its recipe where that holds as much as it gives: what backward has read
for it would be free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import choice, recipes, setting
from skimp._engine.memory.ledger import host
from tests.engine.budget.holding import MIB, is_away, numbers
from tests.support.running import default_mode

# what is noted follows the mode
pytestmark = [default_mode, pytest.mark.usefixtures("obeyed")]


def trained(rows: int) -> tuple[Any, ...]:
    """A weight with a gradient of 1 MiB, which nobody has used for the longest time; the rows (of
    2 KiB) that it was made from; and what these are made of.
    """
    before = numbers(0, rows * 512).view(rows, 512), numbers(1).view(512, 512)
    x = before[0] @ before[1]
    w = numbers(2).view(512, 512).requires_grad_()
    (x @ w).square().sum().backward()
    w.grad._storage.used -= 1e3
    return w, x, before


def next_to_go(*tried: Any) -> list[Any]:
    """What would go first where 512 KiB lack, but for these."""
    budget: Any = host.budget
    return choice.choose(
        budget.known,
        {id(t._storage) for t in tried},
        can_spill=False,
        period=None,
        lacking=MIB // 2,
    )


def test_a_gradient_goes_after_all_else_where_what_it_is_made_from_is_as_large() -> None:
    _w, x, _before = trained(1024)
    assert next_to_go() == [x._storage]


def test_a_gradient_goes_by_its_recipe_where_that_is_smaller() -> None:
    w, *_others = trained(256)
    assert next_to_go() == [w.grad._storage]


def test_where_nothing_else_may_go_a_gradient_does() -> None:
    w, x, _before = trained(1024)
    expected = w.grad.clone()
    assert next_to_go(x, expected) == [w.grad._storage]
    budget: Any = host.budget
    assert budget._evict(w.grad._storage)
    assert is_away(w.grad)
    np.testing.assert_array_equal(w.grad.numpy(), expected.numpy())


def test_with_a_file_such_a_gradient_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "spilling_of", lambda _: 9e9)
    w, *_others = trained(1024)
    budget: Any = host.budget
    budget.spills = True
    assert budget._evict(w.grad._storage)
    assert w.grad._storage.place is not None


def test_a_gradient_of_what_was_written_to_meanwhile_holds_nothing() -> None:
    """As another thread may, after the price was looked up."""
    w, x, (one, other) = trained(1024)
    recipe = w.grad._storage.recipe[0]
    assert recipes.holds_more(recipe, MIB)
    one.zero_()
    other.zero_()
    x.zero_()
    assert not recipes.holds_more(recipe, MIB)


@pytest.mark.parametrize("spill", [False, True])
def test_what_is_made_again_for_a_convolution_may_become_the_budgets(spill: bool) -> None:
    """It was asked to go back as what only stands for the result, which it no longer was."""

    def trained() -> tuple[list[Any], int]:
        torch.manual_seed(0)
        f = torch.nn.functional
        x = torch.randn(16, 16, 64, 64)
        weights = [torch.randn(16, 16, 3, 3).requires_grad_() for _ in range(3)]
        scale = torch.ones(16)
        host.reset_peak()
        before = host.allocated
        y = x
        for w in weights:
            y = f.relu(f.batch_norm(f.conv2d(y, w, padding=1), None, None, scale, None, True))
        y.sum().backward()
        return [w.grad.numpy().copy() for w in weights], host.peak - before

    expected, peak = trained()
    base = host.allocated
    setting.set_budget(base + peak, spill=spill)
    found, _ = trained()
    for a, b in zip(expected, found, strict=True):
        assert a.tobytes() == b.tobytes()
