"""What nobody has, and several are made of: it is made again once for all of them, as far as there
is room, and each of them costs its part of that.
"""

from __future__ import annotations

from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import recipes
from tests.engine.budget.holding import MIB, is_away
from tests.engine.budget.test_giving_up import evict, square, within
from tests.engine.budget.test_together import made
from tests.support.running import default_mode

# what is noted follows the mode
pytestmark = [default_mode, pytest.mark.usefixtures("obeyed")]


def parts(x: Any, *more: Any) -> list[Any]:
    """Each of 1 MiB, of a product of as much that nobody has afterwards."""
    product = x @ x
    return [product.cumsum(0), product.cumsum(1), product.cumprod(0), *[f(product) for f in more]]


def test_a_product_is_made_again_once_for_all_that_are_made_of_it() -> None:
    x = square(1)
    found = parts(x)
    wanted = [one.tolist() for one in found]
    evict(*found)
    with within(4 * MIB):
        assert found[1].tolist() == wanted[1]
        assert not any(map(is_away, found))
        assert made() == {"matmul": 1, "cumsum": 2, "cumprod": 1}
    assert [one.tolist() for one in found] == wanted


def test_what_nobody_asked_for_goes_again_or_is_left_where_there_is_no_room() -> None:
    x = square(2)
    found = parts(x, lambda product: torch.cat([product, product, product]))
    wanted = [one.tolist() for one in found]
    evict(*found)
    with within(2 * MIB):
        assert found[0].tolist() == wanted[0]
        assert is_away(found[3])
    assert [one.tolist() for one in found] == wanted


def test_what_is_made_of_a_product_costs_its_part_of_it() -> None:
    x = square(3)
    found = parts(x)
    one, other = found[0]._storage.recipe[0], found[1]._storage.recipe[0]
    one.seconds = other.seconds = 0.5
    one.sources[0].origin[0].seconds = 3.0
    assert recipes.price(one) == pytest.approx(1.5)
    found.pop()
    assert recipes.price(one) == pytest.approx(2.0)
    evict(found[1])
    assert recipes.price(one) == pytest.approx(2.0)


def test_nothing_that_is_held_is_given_up_for_what_nobody_asked_for() -> None:
    x = square(4)
    kept, product = x.cumsum(0), x @ x
    asked, mate = product @ kept, torch.cat([product, product, product])
    del product
    wanted = asked.tolist(), mate.tolist()
    evict(asked, mate)
    with within(3 * MIB):  # the mate would have room in that of `kept`
        assert asked.tolist() == wanted[0]
        assert made() == {"matmul": 2}
        assert is_away(mate)
        assert not is_away(kept)
    assert mate.tolist() == wanted[1]


def test_what_is_read_for_what_had_no_room_may_go() -> None:
    x = square(5)
    kept, other, product = x.cumsum(0), x.cumprod(0), x @ x
    mate = torch.cat([product, product, other])
    asked = torch.cat([product, product]).view(2, 512, 512).sum(0) @ kept
    del product
    wanted = asked.tolist(), other.tolist()
    evict(asked, mate)
    kept._storage.recipe[0].seconds, other._storage.recipe[0].seconds = 0.0, 1.0
    with within(2 * MIB):  # and that of `other`, which the order does not read any more
        assert asked.tolist() == wanted[0]
        assert made() == {"matmul": 2, "cat": 1, "sum": 1}
        assert is_away(other)
    assert other.tolist() == wanted[1]


def test_what_is_made_of_more_that_is_away_is_left() -> None:
    x = square(6)
    kept, product = x.cumsum(0), x @ x
    asked = product.flip(0)
    others = [product @ kept, product @ x.cumprod(0)]  # of what is away, and of what nobody has
    del product
    wanted = asked.tolist(), [one.tolist() for one in others]
    evict(asked, *others, kept)
    with within(64 * MIB):
        assert asked.tolist() == wanted[0]
        assert made() == {"matmul": 1, "flip": 1}
        assert all(map(is_away, [kept, *others]))
    assert [one.tolist() for one in others] == wanted[1]
