"""The ledger: exact counts and peaks, gauges, observers, threads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import Gauge, Ledger
from skimp.errors import OutOfMemoryError
from tests.support.books import Log, Owner, figures, on_threads


@pytest.fixture
def book() -> Ledger:
    return Ledger("test")


# -- counts and peaks -----------------------------------------------------------------------------


def test_counts_are_exact(book: Ledger) -> None:
    a = Owner(100, book)
    b = Owner(30, book)
    del a
    c = Owner(50, book)
    assert figures(book) == (3, 1, 180, 100, 130)
    assert book.allocated == 80
    del b, c
    assert (book.allocated, book.peak, book.dropped) == (0, 130, 3)


def test_charge_and_refund_are_the_same_as_the_short_path(book: Ledger) -> None:
    owner = SimpleNamespace()
    book.charge(70, owner)
    book.refund(owner)
    assert figures(book) == (1, 1, 70, 70, 70)


def test_an_allocation_below_the_peak_calls_nobody() -> None:
    class Counting(Ledger):
        calls = 0

        def rise(self, nbytes: int, owner: object) -> None:
            Counting.calls += 1
            super().rise(nbytes, owner)

    book = Counting("test")
    Owner(100, book)
    Owner(100, book)
    book.limit = 200
    Owner(100, book)
    assert book.calls == 1
    book.limit = 50
    with pytest.raises(OutOfMemoryError):
        Owner(51, book)
    assert book.calls == 2


def test_the_peak_starts_anew(book: Ledger) -> None:
    a, b = Owner(100, book), Owner(10, book)
    del a
    book.reset_peak()
    assert book.peak == 10
    c = Owner(5, book)
    assert book.peak == 15
    del b, c


class Peaks(RuleBasedStateMachine):
    """Gauges, opened and closed in any order, against the whole history."""

    def __init__(self) -> None:
        super().__init__()
        self.book = Ledger("test")
        self.log = Log()
        self.owners: list[Owner] = []
        self.live = 0
        self.peak = 0
        self.gauges: list[tuple[Gauge, int]] = []

    @rule(nbytes=st.integers(0, 1000))
    def make(self, nbytes: int) -> None:
        self.owners.append(Owner(nbytes, self.book))
        self.live += nbytes
        self.peak = max(self.peak, self.live)
        self.gauges = [(gauge, max(peak, self.live)) for gauge, peak in self.gauges]

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        owner = self.owners.pop(data.draw(st.integers(0, len(self.owners) - 1)))
        self.live -= owner.nbytes

    @rule()
    def open(self) -> None:
        self.gauges.append((self.book.open_gauge(), self.live))

    @precondition(lambda self: self.gauges)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        gauge, peak = self.gauges.pop(data.draw(st.integers(0, len(self.gauges) - 1)))
        self.book.close_gauge(gauge)
        assert gauge.peak == peak

    @rule()
    def reset(self) -> None:
        self.book.reset_peak()
        self.peak = self.live

    @rule()
    def watch(self) -> None:
        self.book.unwatch(self.log)
        self.book.watch(self.log)

    @rule()
    def unwatch(self) -> None:
        self.book.unwatch(self.log)

    @rule()
    def read(self) -> None:
        assert self.book.peak == self.peak
        assert [gauge.peak for gauge, _ in self.gauges] == [peak for _, peak in self.gauges]

    @invariant()
    def live_bytes_agree(self) -> None:
        assert self.book.allocated == self.live


TestPeaks = Peaks.TestCase
TestPeaks.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_threads_lose_no_count(book: Ledger) -> None:
    gauge = book.open_gauge()

    def work() -> None:
        for i in range(3000):
            kept = [Owner(8, book), Owner(i % 7, book)]
            if i % 100 == 0:
                book.open_gauge()
                book.fold()
            del kept

    on_threads(work)
    total = 4 * sum(8 + i % 7 for i in range(3000))
    assert figures(book)[:4] == (24000, 24000, total, total)
    assert book.allocated == 0
    assert 14 <= gauge.peak == book.peak <= 4 * 14


# -- observers ------------------------------------------------------------------------------------


def test_observers_are_told_of_everything_while_they_watch(book: Ledger) -> None:
    log = Log()
    before = Owner(5, book)
    book.watch(log)
    a = Owner(7, book)
    a_id = id(a)
    Owner(3, book)  # below the peak, and told all the same
    del a
    book.unwatch(log)
    Owner(9, book)
    site = log.events[0][3]
    init = Owner.__init__.__code__  # the nearest line outside the package
    assert (site.filename, site.op) == (init.co_filename, "rise")
    assert [event[::2] for event in log.events] == [
        ("allocated", 7),
        ("allocated", 3),
        ("freed", 3),
        ("freed", 7),
    ]
    assert log.events[0][1] == log.events[3][1] == a_id
    del before


def test_a_deferred_storage_names_the_line_that_made_it(book: Ledger) -> None:
    log = Log()
    book.watch(log)
    made = Site("train.py", 12, "relu")
    book.charge(4, SimpleNamespace(site=made))
    assert log.events[0][3] is made


def test_handing_bytes_over_changes_no_count(book: Ledger) -> None:
    log = Log()
    old, new = SimpleNamespace(site=None), SimpleNamespace(site=Site("t.py", 1, "exp"))
    book.charge(10, old)
    book.watch(log)
    before = figures(book)
    book.handed(10, id(old), new)
    assert figures(book) == before
    assert log.events == [("freed", id(old), 10), ("allocated", id(new), 10, new.site)]


def test_an_observer_that_fails_leaves_the_counts_right(book: Ledger) -> None:
    class Bad(Log):
        def allocated(self, owner_id: int, nbytes: int, site: Site) -> None:
            raise KeyboardInterrupt

    book.watch(Bad())
    owner = SimpleNamespace()
    with pytest.raises(KeyboardInterrupt):
        book.charge(10, owner)
    assert (book.made, book.allocated, owner.nbytes) == (1, 10, 10)  # counted as long as it lives
    book.refund(owner)
    assert (book.made, book.dropped, book.allocated) == (1, 1, 0)
