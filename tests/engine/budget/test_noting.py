"""When a budget notes how results were made, and when it rests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import choice, quick, setting, waking
from skimp._engine.budget.statistics import counts
from skimp._engine.dispatch.transforms import active
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from tests.engine.budget.holding import MIB, held, is_away, numbers
from tests.support.frames import frames_of
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted, and what must be there at once, follows the mode


def test_a_budget_that_holds_notes_nothing() -> None:
    with torch.memory.budget(held() + 8 * MIB):
        budget: Any = host.budget
        made = [numbers(i) for i in range(3)]
        made[0].requires_grad_().sum().backward()
        assert not budget.knows
        assert [type(t._storage) for t in made] == [Storage] * 3
        assert active == []


def test_a_budget_wakes_when_it_is_met_and_notes_from_the_next_backward_on() -> None:
    w = numbers(1).requires_grad_()
    with torch.memory.budget(held() + 5 * MIB):
        budget: Any = host.budget
        losses = []
        for _ in range(2):
            x = w
            for _ in range(8):
                x = torch.tanh(x.cumsum(0))
            assert budget.knows
            x.sum().backward()
            losses.append(w.grad.clone())
            w.grad = None
            assert budget.notes
        assert torch.equal(*losses)


def steps(net: Any, batches: list[Any]) -> tuple[list[Any], list[bool]]:
    """A step for each batch: losses, and whether each of them ended with recipes being noted."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses, noted = [], []
    for x in batches:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        noted.append("budget" in active)
    return losses, noted


@pytest.mark.parametrize("spill", [False, True])
def test_a_budget_sleeps_while_the_program_repeats_what_fits(spill: bool) -> None:
    """And notes again from the next op on when it does not: a batch that has to go in parts."""

    def train(budget: int | None) -> tuple[list[Any], list[bool], int]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(6)])
        small, large = torch.randn(1024, 128), torch.randn(3072, 128)
        setting.set_budget(None if budget is None else host.allocated + budget, spill=spill)
        if budget is not None:
            host.budget.note()  # type: ignore[union-attr]
        counts.reset()
        try:
            return *steps(net, [small] * 6 + [large] + [small] * 5), counts.evictions
        finally:
            setting.set_budget(None)

    wanted, _, _ = train(None)
    losses, noted, evictions = train(8 * MIB)
    assert losses == wanted
    assert noted[:2] == [True, True]
    assert noted[3:6] == [False] * 3
    assert evictions > 0
    assert noted[6]
    assert not noted[11]


@pytest.mark.parametrize("worth", [False, True])
def test_recipes_are_noted_with_a_file_only_while_they_are_used(
    worth: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(choice, "spilling_of", lambda _: 9e9 if worth else 0.0)
    monkeypatch.setattr(waking, "RESTS", 2)
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(8)])
    x = torch.randn(512, 128)
    start = [p.detach().clone() for p in net.parameters()]
    wanted, _ = steps(net, [x] * 12)
    with torch.no_grad():
        for p, was in zip(net.parameters(), start, strict=True):
            p.copy_(was)
    with torch.memory.budget(host.allocated + 5 * MIB // 4):
        losses, noted = steps(net, [x] * 12)
    assert losses == wanted
    assert noted[0]
    assert noted[3:6] == [worth] * 3
    assert any(noted[6:])  # tried once more


def test_a_program_of_small_tensors_is_noted() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    with torch.memory.budget(host.allocated + MIB, spill=False):
        assert all(steps(net, [torch.ones(64, 64)] * 6)[1])


def test_a_program_that_holds_more_after_each_step_is_noted() -> None:
    x = torch.ones(1024, 128)
    kept: list[Any] = []

    class Keeping(torch.nn.Linear):
        def forward(self, y: Any) -> Any:
            kept.append(x.cumsum(0))
            return super().forward(y)

    net = Keeping(128, 128)
    with torch.memory.budget(host.allocated + 5 * MIB, spill=False):
        _, noted = steps(net, [x] * 24)
        assert all(noted)
        assert any(map(is_away, kept))
        assert all([float(y[1023, 5]) == 1024 for y in kept])


def test_small_storages_that_were_there_go_where_large_ones_are_not_enough() -> None:
    made = [torch.arange(4096.0) + i for i in range(100)]
    with torch.memory.budget(held() + MIB):
        budget: Any = host.budget
        more = [torch.arange(4096.0) - i for i in range(100)]
        assert sum(map(is_away, [*made, *more])) >= 30
        assert budget.knows
        assert not budget.notes
        assert all([t[7] == 7 + i for i, t in enumerate(made)])
        assert all([t[7] == 7 - i for i, t in enumerate(more)])


def test_what_an_op_was_writing_when_the_budget_woke_has_no_stale_copy() -> None:
    with torch.memory.budget(held() + 2 * MIB):
        x = numbers(0)
        y = numbers(1)  # its room wakes the budget
        z = numbers(2)
        assert is_away(x) or is_away(y)
        x.add_(1)
        more = [numbers(i) for i in range(3, 6)]
        assert torch.equal(x, numbers(0) + 1)
        del more, z


# the package's functions that run, about; by the general way 87, 72, 58, 111 and 37, and without a
# budget 3, 3, 5, 11 and 1
MOST = {"mul": 44, "tanh": 41, "sum": 21, "mm": 46, "view": 14}
AGAIN = 235  # for three ops that are made again in their order, and as the result goes


@pytest.mark.parametrize("name", list(MOST))
def test_a_noted_op_takes_the_short_way_of_one_without_a_budget(name: str) -> None:
    """With arrays that are lent for the call, which nobody keeps after it."""
    x, y = torch.randn(128, 128), torch.randn(128, 128)
    calls: dict[str, Any] = {
        "mul": lambda: x * y,
        "tanh": lambda: x.tanh(),
        "sum": lambda: x.sum(),
        "mm": lambda: x @ y,
        "view": lambda: x.view(-1),
    }
    wanted = calls[name]()
    with torch.memory.budget("64MiB", spill=False):
        x, y = x.clone(), y.clone()
        ran = frames_of(calls[name])
        made = calls[name]()
        budget: Any = host.budget
        assert x._np is None
        if name in ("mul", "tanh", "mm"):
            assert budget._evict(made._storage)
        assert torch.equal(made, wanted)
    general = {"_compute", "run_view", "bind", "wrapper.<locals>.general"}
    assert general.isdisjoint(ran)
    assert len(ran) <= MOST[name]


def test_recipes_are_followed_by_few_functions_beside_their_ops() -> None:
    x, y = torch.randn(128, 128), torch.randn(128, 128)
    wanted = torch.cat([x @ y] * 2) @ y
    with torch.memory.budget("64MiB", spill=False):
        budget: Any = host.budget
        x, y = x.clone(), y.clone()
        made = torch.cat([x @ y] * 2) @ y
        s: Any = made._storage

        def goes_and_comes() -> None:
            assert budget._evict(s)
            s.flat()

        assert len(frames_of(goes_and_comes)) <= AGAIN
        assert torch.equal(made, wanted)


BROADCAST: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x * x[0],
    "column": lambda x: x + x[:, :1],
    "part": lambda x: torch.mul(x[:, :-1], x[:, 1:]),
    "turned": lambda x: torch.maximum(x, x.t()),
}


@pytest.mark.parametrize("f", BROADCAST.values(), ids=BROADCAST)
def test_a_result_of_any_layouts_is_counted_once(f: Callable[[Any], Any]) -> None:
    """The array that a fast path fills is the result's storage, and nobody's once it is given."""
    with torch.memory.budget("1GiB", spill=False):
        x = numbers(0, 1 << 16).view(256, 256)
        f(x)
        before = host.total - host.freed
        made = f(x)
        assert host.total - host.freed - before == made.numel() * made.itemsize
        del made
        assert host.total - host.freed == before
        assert quick._here.made == (None, None)


def test_what_a_kernel_fails_to_fill_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        quick._empty((POOLED,), np.dtype(np.uint8))
        raise ZeroDivisionError

    row: Any = object()
    monkeypatch.setitem(quick._rows, row, fails)
    before = host.total - host.freed
    with pytest.raises(ZeroDivisionError):
        quick._call(row, ())
    assert host.total - host.freed == before
    assert quick._here.made == (None, None)


def test_a_step_that_is_noted_allocates_what_one_without_a_budget_does() -> None:
    """So the steps after it are known again, and nothing more is held: attention in heads is one
    op, and dropout's result is made again for backward.
    """
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, 0.1, batch_first=True)
    x = torch.randn(32, 128, 64)  # 1 MiB

    def peaks(count: int) -> list[int]:
        found = []
        for _ in range(count):
            layer.zero_grad()
            gauge, before = host.open_gauge(), host.allocated
            layer(x).sum().backward()
            found.append(gauge.peak - before)
            host.close_gauge(gauge)
        return found

    free = peaks(2)[-1]
    with torch.memory.budget("1GiB", spill=False):
        found = peaks(5)
        budget: Any = host.budget
        assert not budget.knows
    assert [n - free < MIB // 4 for n in found] == [True] * 5
