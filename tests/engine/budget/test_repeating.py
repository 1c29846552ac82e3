"""What a budget does while a program repeats: the same goes, without a search."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import (
    choice,
    evictable,
    lending,
    recipes,
    recording,
    repetition,
    setting,
    spill,
)
from skimp._engine.budget.spending import Spending
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import KEPT, SMALL, host
from skimp.config import config
from skimp.utils.checkpoint import checkpoint
from tests.engine.budget.holding import MIB, held
from tests.engine.budget.test_noting import steps
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted follows the mode


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What goes does not follow how busy the machine is: one thread, whose scratch memory is the
    same in each step, and ops that take longer than the file, whatever the clock says.
    """
    monkeypatch.setattr(recipes, "usual", lambda kind, seconds: 1.0)
    monkeypatch.setattr(spill, "_mixed", lambda rate, nbytes, seconds: rate)
    with config.using(threads=1):
        yield


class Deep(torch.nn.Module):
    """Twelve layers, and at some steps something else between the sixth and the seventh."""

    def __init__(self, otherwise: set[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(128, 128) for _ in range(12)])
        self.otherwise, self.step = otherwise, 0

    def forward(self, x: Any) -> Any:
        self.step += 1
        for i, layer in enumerate(self.layers):
            if i == 6 and self.step in self.otherwise:
                x = torch.cat([x, x.cumsum(0) * 0.01]).sin()
            x = torch.tanh(layer(x))
        return x


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("otherwise", [set(), {9}, {8, 10, 12}])
def test_with_a_file_what_went_goes_again(otherwise: set[int]) -> None:
    """And nothing is known of any other storage; whatever comes else is made room for."""
    x = torch.randn(1024, 128)
    asleep = []

    def train(budget: int | None) -> list[Any]:
        net = Deep(otherwise)
        setting.set_budget(None if budget is None else host.allocated + budget)
        counts.reset()
        losses = []
        try:
            for _ in range(18):
                searched, went = counts.search_seconds, counts.evictions
                losses += steps(net, [x])[0]
                if budget is not None:
                    assert held() <= host.budget.nbytes  # type: ignore[union-attr]
                    assert counts.evictions > went
                    known: Any = host.budget
                    asleep.append(counts.search_seconds == searched and not known.knows)
        finally:
            setting.set_budget(None)
        return losses

    assert train(6 * MIB) == train(None)
    assert not asleep[0]
    assert not any([asleep[i - 1] for i in otherwise])
    assert all(asleep[6:7])
    assert all(asleep[-3:]) == (len(otherwise) < 2)


def test_scratch_memory_that_was_not_there_before_becomes_part_of_what_goes() -> None:
    """A kernel's parts take more of it where more threads have time: that is no other program."""
    x = torch.randn(1024, 128)

    def train(budget: int | None) -> list[Any]:
        net = Deep(set())
        setting.set_budget(None if budget is None else host.allocated + budget)
        losses, lent = [], []
        try:
            for step in range(10):
                if budget is not None and step >= 8:
                    lent = [lending.lend(2 * MIB)]
                losses += steps(net, [x])[0]
                lent.clear()
                if budget is not None and step >= 7:
                    known: Any = host.budget
                    assert held() <= known.nbytes
                    assert known.repetition.expected is not None
                    assert not known.knows
            assert budget is None or known.repetition._learned
        finally:
            setting.set_budget(None)
        return losses

    assert train(6 * MIB) == train(None)


@pytest.mark.usefixtures("steady")
def test_what_is_smaller_has_its_part_in_what_goes_again() -> None:
    """Storages of 384 KiB between those by which a program is known to repeat."""
    x = torch.randn(1024, 128)

    def train(budget: int | None) -> list[Any]:
        torch.manual_seed(0)
        wide = [(128, 96), (96, 128)] * 3
        layers = [part for w in wide for part in (torch.nn.Linear(*w), torch.nn.Tanh())]
        net = torch.nn.Sequential(*layers)
        setting.set_budget(None if budget is None else host.allocated + budget, spill=False)
        losses = []
        try:
            for _ in range(9):
                searched = counts.search_seconds
                losses += steps(net, [x])[0]
            known: Any = host.budget
            if known is not None:
                assert counts.search_seconds == searched
                assert any(
                    [one.made < 0 and not one.older for one in known.repetition.expected.goes]
                )
        finally:
            setting.set_budget(None)
        return losses

    assert train(7 * MIB // 2) == train(None)


def test_small_storages_of_before_may_be_part_of_what_goes_again() -> None:
    """And no tensor keeps an array over them as long as that is followed."""
    data = torch.randn(1 << 14)
    s: Any = data._storage
    setting.set_budget(host.allocated + 64 * MIB)
    try:
        budget: Any = host.budget
        budget.note()
        budget.repetition._begin()
        period = budget.repetition._now
        assert budget._evict(s)
        assert period.whole
        made = torch.randn(1 << 14)
        assert budget._evict(made._storage)
        assert not period.whole
        period.goes.pop()
        s.flat()
        evictable.leave(s)
        budget.repetition.follow(period)
        budget._note_no_more()
        data.sum()
        assert data._np is None
        budget.repetition.smaller.add(0)
        budget._tell()
        assert host.kept_below == SMALL
        budget._depart()
        assert host.kept_below == KEPT
        budget.repetition.follow(period)
    finally:
        setting.set_budget(None)
    assert not s.loose
    data.sum()
    assert data._np is not None


def test_no_tensor_keeps_an_array_over_what_goes_in_a_period_to_come() -> None:
    """It pinned what was to go there; and what goes in none any more was without one for ever."""
    both = [torch.randn(1 << 14), torch.randn(1 << 14)]
    first, second, third = [repetition.Period() for _ in range(3)]
    for period, t in zip((first, second), both, strict=True):
        period.goes.append(repetition.Gone(0, 0, t.nbytes, weakref.ref(t._storage)))
    known = repetition.Repetition()
    first.next, second.next = second, first
    known.follow(first)
    assert [t._storage.loose for t in both] == [True, True]
    third.next = second.next = second
    known.follow(third)
    assert [t._storage.loose for t in both] == [False, True]
    known.forget()
    assert [t._storage.loose for t in both] == [False, False]


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("otherwise", [set(), {7}, {7, 9, 11, 13}])
def test_what_went_goes_again_while_the_program_repeats(otherwise: set[int]) -> None:
    """Without a search, and noted is what is needed; until it does something else."""
    searches, evictions = [], []
    x = torch.randn(1024, 128)

    def train(budget: int | None) -> list[Any]:
        net = Deep(otherwise)
        setting.set_budget(None if budget is None else host.allocated + budget, spill=False)
        counts.reset()
        losses = []
        try:
            for _ in range(14):
                searched, went = counts.search_seconds, counts.evictions
                losses += steps(net, [x])[0]
                searches.append(counts.search_seconds > searched)
                evictions.append(counts.evictions - went)
                assert budget is None or held() <= host.budget.nbytes  # type: ignore[union-attr]
        finally:
            setting.set_budget(None)
        return losses

    wanted = train(None)
    searches.clear()
    evictions.clear()
    assert train(6 * MIB) == wanted
    assert all(evictions[1:5])
    assert searches[1]
    assert not searches[5]
    assert all([evictions[i - 1] for i in range(2, 14)])
    if len(otherwise) < 2:
        assert not any(searches[11:])
    else:
        assert all([searches[i - 1] for i in otherwise])


def departing(inside: Any) -> None:
    """Run a program that repeats, and then `inside(net, x, the budget)`, where it does not."""
    x = torch.randn(1024, 128)
    net = Deep({9})
    setting.set_budget(host.allocated + 64 * MIB, spill=False)
    try:
        for _ in range(8):
            steps(net, [x])
        known: Any = host.budget
        assert not known.notes
        inside(net, x, known)
        _ = x + 1
        assert known.notes
    finally:
        setting.set_budget(None)


def test_noting_begins_inside_of_what_calls_the_programs_functions() -> None:
    def inside(net: Any, x: Any, known: Any) -> None:
        @torch.no_grad()
        def closure() -> Any:
            net(x)
            assert known.notes
            return x.new_zeros(())

        torch.optim.SGD(net.parameters(), 0.0).step(closure)

    departing(inside)


def test_what_was_called_where_a_program_departed_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where noting can't begin, nothing waits for it."""

    def inside(net: Any, x: Any, known: Any) -> None:
        def otherwise() -> Any:
            between = net(x)
            return weakref.ref(between._storage)

        def function(x: Any) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(recording, "is_only_op", lambda _: False)
                gone = otherwise()
                x = x + 1
                assert known.notes_soon
                assert gone() is None
            return x

        checkpoint(function, x, use_reentrant=False)

    departing(inside)


def test_a_period_is_the_same_where_nothing_is_noted(monkeypatch: Any) -> None:
    """An expression counts as it begins to wait, for others decide when it is computed."""
    x = torch.randn(512, 512)
    found: list[int] = []
    monkeypatch.setattr(Spending, "_large", lambda self, nbytes, owner: found.append(nbytes))

    def program(early: bool) -> list[int]:
        found.clear()
        y = x * 2
        if early:
            y.numpy()
        torch.nn.functional.dropout(x @ y, 0.5).sum()
        return found.copy()

    setting.set_budget(host.allocated + 64 * MIB, spill=False)
    try:
        noted = program(early=False)
        assert len(noted) == 3
        assert program(early=True) == noted
        known: Any = host.budget
        known._note_no_more()
        assert program(early=False) == noted
    finally:
        setting.set_budget(None)


def test_gradients_of_linear_maps_are_added_in_place_where_calls_are_noted_too(
    monkeypatch: Any,
) -> None:
    """So a step of these asks for the same in both."""
    layer = torch.nn.Linear(256, 256)
    x = torch.randn(4, 256, 256, requires_grad=True)
    found: list[int] = []
    monkeypatch.setattr(Spending, "_large", lambda self, nbytes, owner: found.append(nbytes))

    def program() -> list[int]:
        y = torch.nn.functional.gelu(x)
        z = layer(y) + layer(y).sin()
        x.grad = layer.weight.grad = layer.bias.grad = None
        found.clear()
        z.sum().backward()
        return found.copy()

    setting.set_budget(host.allocated + 64 * MIB, spill=False)
    try:
        known: Any = host.budget
        noted = program()
        known._note_no_more()
        assert program() == noted
    finally:
        setting.set_budget(None)


@pytest.mark.parametrize("size", [1 << 16, 1 << 18])
def test_what_has_a_place_in_a_plan_goes_first_beyond_the_sample_too(size: int) -> None:
    """Also what is no larger than what was there before, though that is made again for less."""
    setting.set_budget(host.allocated + 64 * MIB, spill=False)
    try:
        budget: Any = host.budget
        before = [torch.randn(1 << 16) for _ in range(8)]
        budget.repetition.turn(budget.nbytes)
        small = [torch.ones(1 << 13) + i for i in range(8 * choice.SAMPLE)]
        placed = torch.ones(size).cumsum(0)
        torch.cuda.synchronize()
        placed._storage.recipe[0].seconds = 1.0
        period = budget.repetition.turns
        for _ in range(8):
            first = choice.choose(budget.known, set(), False, period, 1)
            assert first == [placed._storage]
        del before, small
    finally:
        setting.set_budget(None)


def test_a_program_without_backward_leaves_nothing_to_remember(monkeypatch: Any) -> None:
    """Its period does not end."""
    monkeypatch.setattr(repetition, "MANY", 8)
    setting.set_budget(host.allocated + 4 * MIB, spill=False)
    try:
        budget: Any = host.budget
        budget.repetition.turn(budget.nbytes)  # a whole one begins
        kept = [torch.ones(1 << 18).cumsum(0) for _ in range(64)]
        now = budget.repetition._now
        assert len(budget.repetition._owners) + len(now.sizes) + len(now.goes) < 64
        assert not now.whole
        del kept
    finally:
        setting.set_budget(None)


def test_a_period_has_no_more_room_than_where_its_expressions_are_computed() -> None:
    """They are no allocations that are expected, and may be the most that is held."""
    w, x = torch.randn(512, 512).requires_grad_(), torch.randn(512, 512)

    def step() -> None:
        q = w @ x
        waiting = [torch.exp(q.detach()) for _ in range(6)]
        for one in waiting:
            one.numpy()
        del one, waiting
        q.sum().backward()
        w.grad = None

    step()
    gauge = host.open_gauge()
    step()
    peak = gauge.peak
    host.close_gauge(gauge)
    setting.set_budget(peak + 30_000, spill=False)
    try:
        for _ in range(4):
            step()
        budget: Any = host.budget
        assert budget.repetition.expected is not None
        assert budget.repetition.expected.room <= 15_000
    finally:
        setting.set_budget(None)
