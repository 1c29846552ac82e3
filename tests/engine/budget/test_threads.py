"""What other threads do between the steps in which bytes go and are counted."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import choice, rematerializing, setting
from skimp._engine.budget.repetition import Repetition
from skimp._engine.budget.spending import Spending
from skimp._engine.memory import caching
from skimp._engine.memory.caching import Pool, pool
from skimp._engine.memory.ledger import Ledger, host
from skimp._engine.memory.pending import LOCK
from skimp._kernels import scratch

MIB = 1 << 20


@pytest.mark.parametrize("written", ["x", "y"])
def test_what_is_written_to_after_its_recipe_was_looked_at_does_not_go_by_it(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """By another thread, which needs no room for it."""
    x = torch.arange(1 << 18, dtype=torch.float32)
    order = Spending._order
    done: list[Any] = []
    tensors = {"x": x}

    def writes(self: Spending, s: Any) -> Any:
        found = order(self, s)
        if found is not None and not done:
            done.append(s)
            other = threading.Thread(target=tensors[written].fill_, args=(1.0,))
            other.start()
            other.join()
        return found

    setting.set_budget(host.allocated + 64 * MIB, spill=False)
    try:
        y = tensors["y"] = x.cumsum(0)
        expected = [y[1000].item(), y[-1].item()] if written == "x" else [1.0, 1.0]
        monkeypatch.setattr(Spending, "_order", writes)
        budget: Any = host.budget
        budget._evict_all()
        assert done == [y._storage]
        assert [y[1000].item(), y[-1].item()] == expected
    finally:
        setting.set_budget(None)


@pytest.mark.parametrize(
    ("alone", "moment"),
    [(True, "within"), (False, "before"), (False, "between"), (False, "within")],
)
def test_what_is_written_to_while_a_recipe_reads_it_is_made_once_more(
    monkeypatch: pytest.MonkeyPatch, alone: bool, moment: str
) -> None:
    """By another thread, which does not wait for what went while the source was away too."""
    x = torch.arange(1 << 18, dtype=torch.float32).view(512, 512) % 7
    done: list[bool] = []
    setting.set_budget(host.allocated + 64 * MIB, spill=False)
    try:
        source = x.cumsum(1)
        first = source.sort(1)[0]
        y = first if alone else first.cumsum(0)
        expected = y[:4].tolist()
        budget: Any = host.budget
        for t in {id(t): t for t in (source, first, y)}.values():
            assert budget._evict(t._storage)
        assert source.sum().item()
        storages: list[Any] = [t._storage for t in (x, source, first, y)]
        recipe = storages[2].recipe[0]
        make = type(recipe).make

        def writes() -> None:
            if not done:
                done.append(True)
                other = threading.Thread(target=source.fill_, args=(1.0,))
                other.start()
                other.join(2.0)

        def slow(self: Any, given: Any, waits: bool) -> Any:
            if self is recipe and moment == "within":
                writes()
            return make(self, given, waits)

        follow_one = rematerializing._Order._follow_one

        def late(self: Any, one: Any, *rest: Any) -> Any:
            if one is recipe and moment == "before":
                writes()
            return follow_one(self, one, *rest)

        given = rematerializing._Order._given

        def looked_at(self: Any, one: Any, dead: Any) -> Any:
            if one is recipe and moment == "between":
                writes()
            return given(self, one, dead)

        monkeypatch.setattr(type(recipe), "make", slow)
        monkeypatch.setattr(rematerializing._Order, "_given", looked_at)
        monkeypatch.setattr(rematerializing._Order, "_follow_one", late)
        assert y[:4].tolist() == expected
        assert done
        assert [s.held for s in storages] == [0, 0, 0, 0]
        assert not rematerializing._orders
    finally:
        setting.set_budget(None)


def test_nothing_is_forgotten_that_another_thread_is_about_to_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backward ends, after which what a program does is expected, as something goes."""
    setting.set_budget(host.allocated + 64 * MIB, spill=False)
    try:
        budget: Any = host.budget
        x = torch.arange(1 << 18, dtype=torch.float32)
        y = x.cumsum(0)
        expected = y.sum().item()
        monkeypatch.setattr(Spending, "_unexpected", lambda self: object())
        monkeypatch.setattr(Repetition, "follow", lambda *_: None)
        other = threading.Thread(target=budget.after_backward)
        with LOCK():
            other.start()
            other.join(0.2)
            assert budget._evict(y._storage)
        other.join()
        assert y.sum().item() == expected
    finally:
        setting.set_budget(None)


def test_a_recipe_may_be_forgotten_while_somebody_looks_what_may_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting.set_budget(host.allocated + 64 * MIB)
    try:
        budget: Any = host.budget
        budget.note()
        y = torch.arange(1 << 18, dtype=torch.float32).cumsum(0)
        s: Any = y._storage
        known = s.recipe
        assert known is not None

        def forgets(s: Any) -> float:
            s.recipe = None
            return 1.0

        monkeypatch.setattr(choice, "spilling_of", forgets)
        assert choice._least(s, can_spill=True) == min(1.0, known[0].seconds)
    finally:
        setting.set_budget(None)


def test_what_dies_while_a_budget_begins_is_counted_as_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = [torch.ones(MIB)]
    supply = scratch.supply

    def dies(lender: Any) -> None:
        held.clear()
        supply(lender)

    monkeypatch.setattr(scratch, "supply", dies)
    setting.set_budget(host.allocated + 64 * MIB)
    try:
        assert host.slack <= (host.bound or 0) - pool.overhead
    finally:
        setting.set_budget(None)


def test_a_limit_that_is_set_while_somebody_looks_holds() -> None:
    class Backing:
        rounding = 0

        @property
        def overhead(self) -> int:
            if ledger.limit == 1000:
                ledger.limit = 100
            return 10

        def shrink(self) -> None:
            raise AssertionError

    ledger = Ledger("test")
    ledger.limit = 1000
    ledger.backing = Backing()
    ledger.look()
    assert ledger.slack == 90


def test_a_block_that_is_counted_in_a_look_is_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread looks when a block is counted and before anything else happens."""
    with torch.memory.budget(host.allocated + 64 * MIB):
        warm = torch.ones(MIB)
        del warm
        monkeypatch.setattr(caching, "WINDOW", 1)
        monkeypatch.setattr(Pool, "_turn", lambda self: host.look())
        x = torch.ones(MIB)
        assert host.slack <= (host.bound or 0) - pool.overhead
        del x


def test_a_tuple_that_is_being_filled_is_not_held_while_a_budget_looks_for_storages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector knows it, and CPython cuts it to its length where nobody else has it."""
    looking, filled = threading.Event(), threading.Event()
    kept = torch.zeros(1 << 18)

    def waits(*_: Any) -> bool:
        looking.set()
        return not filled.wait(60)

    def look() -> None:
        budget.enrol_all(settled=False)

    def parts() -> Iterator[int]:
        yield 1
        thread.start()
        assert looking.wait(60)
        yield 2

    with torch.memory.budget("1GiB"):
        budget: Any = host.budget
        monkeypatch.setattr(Spending, "_know", waits)
        thread = threading.Thread(target=look)
        try:
            assert tuple(parts()) == (1, 2)
        finally:
            filled.set()
            thread.join()
    assert kept.sum() == 0
