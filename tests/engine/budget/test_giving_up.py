"""What an order of recipes, or an op, holds for later goes where nothing else may, and is made
again: once, so that what does not fit is refused in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import spending
from skimp._engine.budget.evictable import gathered
from skimp._engine.budget.rematerializing import _orders
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, is_away, numbers
from tests.engine.budget.test_together import made
from tests.support.running import default_mode

# what is noted, and what must be there at once, follows the mode
pytestmark = [default_mode, pytest.mark.usefixtures("obeyed")]


def square(seed: int) -> Any:
    return numbers(seed).view(512, 512)


def evict(*tensors: Any) -> None:
    budget: Any = host.budget
    for t in tensors:
        t._storage.flat()
        assert budget._evict(t._storage)
        assert is_away(t)


@contextmanager
def within(nbytes: int) -> Iterator[None]:
    """Have the budget allow so many bytes more than there are; what it knows stays."""
    budget: Any = host.budget
    before = budget.nbytes
    budget.nbytes = host.reserved_for(nbytes)
    host.spend(budget)
    counts.reset()
    try:
        yield
        assert host.reserved_for(0) <= budget.nbytes
    finally:
        budget.nbytes = before
        host.spend(budget)
        assert not _orders
        assert not gathered()


def wide(x: Any) -> Any:
    """Of 1 MiB, by way of 3 that nobody has afterwards."""
    return torch.cat([x, x, x]).view(3, 512, 512).sum(0)


WIDE = {"cat": 1, "sum": 1}


def sum_of_two(x: Any) -> tuple[Any, Any]:
    kept = x.cumsum(0)
    return kept, kept + wide(x)


def test_an_order_gives_up_what_it_reads_later_and_makes_it_again() -> None:
    x = square(1)
    kept, last = sum_of_two(x)
    wanted = kept.tolist(), last.tolist()
    evict(last)
    with within(3 * MIB):  # and that of `kept`
        assert last.tolist() == wanted[1]
        assert made() == {**WIDE, "cumsum": 1, "add": 1}
    assert kept.tolist() == wanted[0]


def test_what_does_not_fit_is_refused_after_each_was_given_up_once() -> None:
    x = square(1)
    kept, last = sum_of_two(x)
    wanted = last.tolist()
    evict(last)
    with within(2 * MIB), pytest.raises(OutOfMemoryError):
        last.tolist()
    assert is_away(last)
    assert kept._storage.held == x._storage.held == 0
    assert last.tolist() == wanted


def test_an_op_gives_up_what_it_has_while_it_waits_for_the_rest() -> None:
    x = square(2)
    a, b = x.cumsum(0), wide(x)
    wanted = (a @ b).tolist()
    evict(b)
    with within(3 * MIB):
        product = a @ b
        assert made() == {**WIDE, "cumsum": 1}
    assert product.tolist() == wanted


def test_two_that_have_no_room_beside_each_other_are_refused() -> None:
    """Each is given up once for the other."""
    x = square(2)
    a, b = wide(x), wide(x + 1)
    wanted = (a @ b).tolist()
    evict(a, b)
    with within(4 * MIB):
        with pytest.raises(OutOfMemoryError):
            a @ b
        assert counts.rematerialized_bytes <= 4 * 5 * MIB
    assert (a @ b).tolist() == wanted


def test_an_expression_that_waits_is_computed_over_what_it_alone_has() -> None:
    """Else its two operands would be there as long as others are made."""
    x = square(3)
    kept = x.flip(0)
    last = (x.cumsum(0).cumsum(0).cumsum(0) * kept) @ wide(x)
    wanted = last.tolist()
    evict(last)
    with within(4 * MIB):  # and that of `kept`
        assert last.tolist() == wanted
        assert made() == {**WIDE, "cumsum": 3, "mul": 1, "matmul": 1}
        assert is_away(kept)


def test_what_is_made_again_takes_over_the_block_that_it_took_at_first() -> None:
    x = square(5)
    y = x.cumsum(0)
    y.tolist()
    last = y.relu()
    del y
    wanted = last.tolist()
    evict(last)
    with within(MIB):
        assert last.tolist() == wanted
        assert made() == {"cumsum": 1, "relu": 1}


def test_what_an_expression_has_read_goes_and_its_reader_runs_once() -> None:
    x = square(8)
    kept = x.cumsum(0)
    last = kept.relu().flip(0)
    wanted = last.tolist()
    evict(last)
    with within(MIB):  # and that of `kept`
        assert last.tolist() == wanted
        assert made() == {"relu": 1, "flip": 1}
        assert is_away(kept)


def test_the_longest_way_is_made_first() -> None:
    """Else what one op makes waits beside all that the others need on their way."""
    x = square(6)
    last = wide(x) @ x.cumsum(0)
    wanted = last.tolist()
    evict(last)
    with within(4 * MIB):
        assert last.tolist() == wanted
        assert made() == {**WIDE, "cumsum": 1, "matmul": 1}


def test_a_result_on_the_way_goes_and_is_made_twice() -> None:
    x = square(4)
    between = x.cumsum(0)
    last = wide(between) @ between
    wanted = last.tolist()
    del between
    evict(last)
    with within(4 * MIB):
        assert last.tolist() == wanted
        assert made() == {**WIDE, "cumsum": 2, "matmul": 1}


@pytest.mark.parametrize("room", [1, 2])
def test_what_reads_much_is_computed_at_once_where_there_is_room_and_else_waits(room: int) -> None:
    """Later it may take over the block of what only it has by then."""
    x, scale, shift = square(7), torch.ones(512), torch.ones(512)
    z = None
    try:
        with within(room * MIB), pytest.MonkeyPatch.context() as patch:
            patch.setattr(spending, "SHARE", 1 << 10)
            y = x.cumsum(0)
            z = y * scale + shift * x
            assert (z._storage.deferred is None) == (room > 1)
            del y
            assert z.flatten()[0].item() == 2 * x.flatten()[0].item()
    finally:
        del z
