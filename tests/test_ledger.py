"""The ledger: exact counts and peaks, regions, limits and refusals, copies, statistics, lines."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skimp.errors import CopyError, Live, OutOfMemoryError, SkimpError
from skimp.memory import copies, ledger, limits, regions, sites, stats
from skimp.memory.caching import pool
from skimp.memory.ledger import Gauge, Ledger, host
from skimp.memory.limits import Tenants
from skimp.memory.regions import Region, region
from skimp.memory.sites import Site
from skimp.memory.sizes import parse_size, readable

MIB = 1 << 20
HERE = __file__


class Owner:
    """What a storage is to the ledger."""

    site: Site | None = None

    def __init__(self, nbytes: int, book: Ledger) -> None:
        self.nbytes = -1
        self.book = book
        book.made = book.made + 1  # the path of a small op, as ledger.py states it
        book.total = total = book.total + nbytes
        if total - book.freed > book.ceiling:
            book.rise(nbytes, self)
        self.nbytes = nbytes

    def __del__(self) -> None:
        book, n = self.book, self.nbytes
        if n >= 0:
            book.dropped = book.dropped + 1
            book.freed = book.freed + n
            if book.watched:
                book.fell(n, id(self))


class Log:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def allocated(self, owner_id: int, nbytes: int, site: Site) -> None:
        self.events.append(("allocated", owner_id, nbytes, site))

    def freed(self, owner_id: int, nbytes: int) -> None:
        self.events.append(("freed", owner_id, nbytes))

    def copied(self, nbytes: int, op: str, reason: str, site: Site) -> None:
        self.events.append(("copied", nbytes, op, reason, site))


def figures(book: Ledger) -> tuple[int, ...]:
    return (book.made, book.dropped, book.total, book.freed, book.peak)


@pytest.fixture
def book() -> Ledger:
    return Ledger("test")


@pytest.fixture
def limit() -> Iterator[Any]:
    """Sets limits on the host that end with the test."""
    yield limits.set_limit
    limits.set_limit(None)


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
    book.refund(70, id(owner))
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

    threads = [threading.Thread(target=work) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
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
    line = sys._getframe().f_lineno - 2
    Owner(3, book)  # below the peak, and told all the same
    del a
    book.unwatch(log)
    Owner(9, book)
    site = log.events[0][3]
    assert (site.filename, site.lineno) == (HERE, Owner.__init__.__code__.co_firstlineno + 6)
    assert line != site.lineno  # Owner is not part of the package, so its line is the nearest
    assert [event[::2] for event in log.events] == [
        ("allocated", 7),
        ("allocated", 3),
        ("freed", 3),
        ("freed", 7),
    ]
    assert log.events[0][1] == log.events[3][1] == a_id
    del before


def test_a_promise_names_the_line_that_made_it(book: Ledger) -> None:
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
    with pytest.raises(KeyboardInterrupt):
        book.charge(10, None)
    assert (book.made, book.total, book.allocated) == (0, 0, 0)


# -- limits ---------------------------------------------------------------------------------------


def test_a_limit_refuses_and_leaves_the_counts_right(book: Ledger) -> None:
    a = Owner(60, book)
    book.limit = 100
    before = figures(book)
    with pytest.raises(OutOfMemoryError) as refused:
        Owner(41, book)
    assert figures(book) == before
    assert book.ooms == 1
    assert (refused.value.requested, refused.value.allocated, refused.value.limit) == (41, 60, 100)
    b = Owner(40, book)  # exactly the limit
    assert book.allocated == book.peak == 100
    del a, b
    c = Owner(100, book)
    with pytest.raises(OutOfMemoryError):
        Owner(1, book)
    del c
    book.limit = None
    assert Owner(101, book).nbytes == 101


def test_a_limit_below_what_is_live_holds_from_now_on(book: Ledger) -> None:
    a, b = Owner(60, book), Owner(60, book)
    book.limit = 100
    with pytest.raises(OutOfMemoryError):
        Owner(1, book)
    del a
    assert Owner(40, book).nbytes == 40
    del b


def test_relievers_are_asked_in_order_and_no_further_than_needed(book: Ledger) -> None:
    held = [Owner(50, book), Owner(50, book)]
    asked: list[str] = []

    def fails() -> None:
        asked.append("fails")
        Owner(500, book)  # breaks the limit itself, which must not ask anybody again

    def helps() -> None:
        asked.append("helps")
        held.pop()

    def idle() -> None:
        asked.append("idle")

    book.relievers[:] = [fails, helps, idle]
    book.limit = 100
    a = Owner(30, book)
    assert asked == ["fails", "helps"]
    assert book.allocated == 80
    assert book.peak == 100
    del a


def test_garbage_makes_room(book: Ledger) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.owner = Owner(80, book)

    Cycle()
    book.limit = 100
    a = Owner(90, book)
    assert book.allocated == 90
    del a


def test_threads_stay_below_a_limit(book: Ledger) -> None:
    book.relievers.clear()
    book.limit = 40
    refused = []

    def work() -> None:
        for _ in range(1500):
            try:
                Owner(15, book)
            except OutOfMemoryError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert book.allocated == 0
    assert book.peak <= 40
    assert book.made == book.dropped == 6000 - len(refused)
    assert book.ooms == len(refused)


def test_a_refusal_says_who_holds_what(book: Ledger) -> None:
    old = SimpleNamespace(site=None)
    book.charge(5 * MIB, old)
    tenants = Tenants(book)
    book.watch(tenants)
    book.live_by_line = tenants.by_line
    book.limit = 100 * MIB
    load, relu = Site("train.py", 3, "randn"), Site("train.py", 9, "relu")
    owners = [SimpleNamespace(site=site) for site in (load, relu, relu)]
    for owner, nbytes in zip(owners, (30 * MIB, 20 * MIB, 25 * MIB), strict=True):
        book.charge(nbytes, owner)
    with pytest.raises(OutOfMemoryError) as refused:
        book.charge(60 * MIB, SimpleNamespace(site=Site("train.py", 11, "exp")))
    error = refused.value
    assert error.live == [Live(relu, 45 * MIB, 2), Live(load, 30 * MIB, 1), Live(None, 5 * MIB, 0)]
    assert sum(one.bytes for one in error.live) == error.allocated == book.allocated
    assert error.site == ("train.py", 11, "exp")
    assert str(error).splitlines() == [
        "CPU out of memory. Tried to allocate 60.00 MiB (62914560 bytes): exp at train.py:11.",
        "80.00 MiB of the limit of 100.00 MiB are allocated; the request is 40.00 MiB too large.",
        "Live by line, largest first:",
        "     45.00 MiB  relu at train.py:9 (2 times)",
        "     30.00 MiB  randn at train.py:3",
        "      5.00 MiB  before the limit was set",
        "40.00 MiB would have to go, for instance what was made by relu at train.py:9 (2 times).",
    ]
    book.refund(30 * MIB, id(owners[0]))
    with pytest.raises(OutOfMemoryError, match="at least, or smaller pieces") as refused:
        book.charge(101 * MIB, None)
    assert refused.value.live[0].bytes == 45 * MIB
    assert len(refused.value.live) == 2


def test_a_long_list_is_cut_and_a_hopeless_one_says_what_limit_would_do() -> None:
    from skimp.memory.refusal import SHOWN, out_of_memory

    live = [Live(Site("a.py", i, "add"), 10, 1) for i in range(1, SHOWN + 4)]
    lines = str(out_of_memory(20, 150, 160, Site("a.py", 99, "mul"), live)).splitlines()
    assert len(lines) == 2 + 1 + SHOWN + 1 + 1
    assert lines[-2].split() == ["30", "bytes", "3", "more", "lines"]
    hopeless = str(out_of_memory(20, 150, 160, Site("a.py", 99, "mul"), []))
    assert hopeless.endswith("10 bytes would have to go, or the limit be set to 170 bytes.")


def test_out_of_memory_errors_are_what_programs_expect() -> None:
    error = OutOfMemoryError("mine", requested=3, live=[Live(None, 1, 1)])
    assert isinstance(error, RuntimeError)
    assert isinstance(error, SkimpError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.requested, again.live) == ("mine", 3, [Live(None, 1, 1)])


def test_set_limit(limit: Any) -> None:
    assert limits.get_limit() is None
    limit("1GiB")
    assert limits.get_limit() == 1 << 30
    base = host.allocated
    a = Owner(MIB, host)
    with pytest.raises(OutOfMemoryError) as refused:
        Owner(1 << 30, host)
    mine = [one for one in refused.value.live if one.site and one.site.filename == HERE]
    assert [(one.bytes, one.allocations) for one in mine] == [(MIB, 1)]
    limit(base + 2 * MIB)  # another one: what is known stays known
    with pytest.raises(OutOfMemoryError) as refused:
        Owner(3 * MIB, host)
    assert Live(mine[0].site, MIB, 1) in refused.value.live
    limit(None)
    assert not host.watched
    assert host.live_by_line is None
    del a


def test_a_limit_shrinks_the_cache(limit: Any) -> None:
    a = pool.take(64 * MIB)
    host.charge(a.nbytes, a)
    host.refund(a.nbytes, id(a))
    del a
    assert pool.cached >= 64 * MIB
    limit(pool.in_use + 8 * MIB)
    assert pool.cached <= 8 * MIB


def test_set_per_process_memory_fraction(limit: Any) -> None:
    limits.set_per_process_memory_fraction(0.5)
    assert limits.get_limit() == stats.mem_get_info()[1] // 2
    with pytest.raises(ValueError, match="Allowed range: 0~1"):
        limits.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="must be `float`"):
        limits.set_per_process_memory_fraction("half")  # type: ignore[arg-type]


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (0, 0),
        (123, 123),
        ("123", 123),
        ("2GiB", 2 << 30),
        ("2 GiB", 2 << 30),
        ("500MB", 500_000_000),
        ("1.5g", 3 << 29),
        ("1_000 kB", 1_000_000),
        (".5TiB", 1 << 39),
        ("64 bytes", 64),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_are_read(text: int | str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "bad", ["", "GiB", "-1", "2XB", "1e9", "1 2", "inf", None, 1.5, True, b"1"]
)
def test_bad_sizes_are_refused_with_the_remedy(bad: Any) -> None:
    with pytest.raises(ValueError, match="a size is bytes or text like") as refused:
        parse_size(bad)
    assert repr(bad) in str(refused.value)


def test_a_size_is_not_negative() -> None:
    with pytest.raises(ValueError, match="negative; got -1"):
        parse_size(-1)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB"),
        (400_000_000, "381.47 MiB"),
        (-(1 << 20), "-1.00 MiB"),
        (3 << 29, "1.50 GiB"),
        (5 << 50, "5120.00 TiB"),
    ],
)
def test_sizes_are_written(nbytes: int, text: str) -> None:
    assert readable(nbytes) == text


@given(st.integers(0, 1 << 50))
def test_what_is_written_can_be_read(nbytes: int) -> None:
    assert abs(parse_size(readable(nbytes)) - nbytes) <= max(nbytes // 100, 1)


# -- regions --------------------------------------------------------------------------------------


def test_a_region_counts_what_happened_in_it(book: Ledger) -> None:
    before = Owner(100, book)
    peak_before = Owner(1000, book)
    del peak_before
    with Region("step", book) as r:
        a = Owner(50, book)
        b = Owner(30, book)
        del b
        del before
        book.copy(7, "reshape", "a reason")
        book.unwritten += 11
    assert (r.peak, r.extra) == (180, 80)
    assert (r.allocated, r.allocations, r.freed, r.kept) == (80, 2, 130, -50)
    assert (r.copied, r.unwritten) == (7, 11)
    assert r.seconds > 0
    assert book.peak == 1100
    del a
    assert (r.peak, r.freed, r.kept) == (180, 130, -50)  # figures of a closed region stay
    assert "step: peak 180 bytes (80 bytes extra)" in str(r)


def test_regions_nest_and_each_sees_its_own_peak(book: Ledger) -> None:
    base = Owner(10, book)
    with Region("outer", book) as outer:
        Owner(500, book)
        with Region("inner", book) as inner:
            Owner(100, book)
            book.reset_peak()
            Owner(60, book)
            assert book.peak == 70
        with Region("quiet", book) as quiet:
            pass
    assert (inner.peak, inner.extra) == (110, 100)
    assert (outer.peak, outer.extra) == (510, 500)
    assert (quiet.peak, quiet.extra, quiet.allocated) == (10, 0, 0)
    assert book.peak == 70
    del base


def test_regions_may_overlap(book: Ledger) -> None:
    first, second = Region("first", book), Region("second", book)
    first.__enter__()
    Owner(10, book)
    second.__enter__()
    Owner(40, book)
    first.__exit__(None, None, None)
    Owner(90, book)
    second.__exit__(None, None, None)
    assert (first.peak, second.peak) == (40, 90)


def test_an_open_region_can_be_read_and_a_closed_one_used_again(book: Ledger) -> None:
    r = Region("again", book)
    with pytest.raises(RuntimeError, match="'again' has no figures yet"):
        _ = r.peak
    with r:
        a = Owner(10, book)
        assert (r.peak, r.allocated, r.kept) == (10, 10, 10)
        Owner(20, book)
        assert (r.peak, r.allocated, r.kept) == (30, 30, 10)
    with r:
        pass
    assert (r.peak, r.extra, r.allocated) == (10, 0, 0)
    del a


def test_promises_are_delivered_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(ledger, "before_reading", [lambda: calls.append(1)])
    for read in (
        stats.memory_allocated,
        stats.max_memory_allocated,
        stats.memory_reserved,
        stats.max_memory_reserved,
        stats.reset_peak_memory_stats,
        stats.memory_stats,
        stats.memory_summary,
    ):
        calls.clear()
        read()
        assert calls == [1], read.__name__
    calls.clear()
    with region("r") as r:
        assert calls == [1]
        _ = r.allocated
        assert calls == [1, 1]
    assert calls == [1, 1, 1]
    _ = r.peak
    assert calls == [1, 1, 1]


def test_an_error_in_a_region_comes_out_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OutOfMemoryError("promised too much")

    r = regions.region("r")
    with pytest.raises(ZeroDivisionError), r:
        monkeypatch.setattr(ledger, "before_reading", [fails])
        raise ZeroDivisionError
    assert r.allocated == 0
    monkeypatch.setattr(ledger, "before_reading", [])
    again = region("again").__enter__()
    monkeypatch.setattr(ledger, "before_reading", [fails])
    with pytest.raises(OutOfMemoryError, match="promised"):
        again.__exit__(None, None, None)
    assert again.seconds > 0


# -- copies ---------------------------------------------------------------------------------------


def test_copies_are_counted_and_told() -> None:
    log = Log()
    host.watch(log)
    try:
        with region() as r:
            copies.told(12, "reshape", "reshape of a tensor with strides (1, 3)")
            line = sys._getframe().f_lineno - 1
    finally:
        host.unwatch(log)
    assert r.copied == 12
    assert log.events[-1][:4] == (
        "copied",
        12,
        "reshape",
        "reshape of a tensor with strides (1, 3)",
    )
    assert log.events[-1][4][:2] == (HERE, line)


def test_no_copies_refuses_with_numbers_before_anything_is_counted() -> None:
    before = (host.copied, host.copies)
    with copies.no_copies(), copies.no_copies(), pytest.raises(RuntimeError) as refused:
        copies.told(24, "reshape", "reshape of a tensor with strides (1, 3)")
    assert isinstance(refused.value, CopyError)
    assert (host.copied, host.copies) == before
    message = str(refused.value)
    assert message.startswith(f"no_copies: reshape at {HERE}:")
    assert " has to copy 24 bytes: reshape of a tensor with strides (1, 3). " in message
    copies.told(1, "reshape", "allowed again")
    assert host.copies == before[1] + 1


def test_no_copies_is_for_one_thread() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            copies.told(1, "contiguous", "on another thread")
        except CopyError as error:
            failed.append(error)

    with copies.no_copies():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert failed == []


# -- PyTorch's names ------------------------------------------------------------------------------


def test_counters_count_the_host() -> None:
    stats.reset_peak_memory_stats()
    base = stats.memory_allocated()
    a = Owner(1000, host)
    b = Owner(500, host)
    del b
    assert stats.memory_allocated("cuda") == stats.memory_allocated(0) == base + 1000
    assert stats.max_memory_allocated() == base + 1500
    stats.reset_peak_memory_stats()
    assert stats.max_memory_allocated() == base + 1000
    del a


def test_reserved_is_never_less_than_allocated() -> None:
    a = Owner(1000, host)
    b = pool.take(4 * MIB)
    host.charge(b.nbytes, None)
    reserved = stats.memory_reserved()
    assert reserved >= stats.memory_allocated()
    assert reserved >= pool.reserved + 1000
    assert stats.max_memory_reserved() >= stats.max_memory_allocated()
    host.refund(b.nbytes, id(None))
    del b
    assert stats.memory_reserved() == reserved  # it is cached
    given = stats.empty_cache()
    assert given >= 4 * MIB
    assert stats.memory_reserved() == reserved - given
    del a


KEYS = (
    "active",
    "active_bytes",
    "allocated_bytes",
    "allocation",
    "inactive_split",
    "inactive_split_bytes",
    "requested_bytes",
    "reserved_bytes",
    "segment",
)


def test_memory_stats_has_pytorchs_keys() -> None:
    found = stats.memory_stats()
    assert list(found) == sorted(found)
    for statistic in KEYS:
        for part in ("all", "small_pool", "large_pool"):
            for metric in ("current", "peak", "allocated", "freed"):
                assert found[f"{statistic}.{part}.{metric}"] >= 0
    for name in ("num_alloc_retries", "num_ooms", "oversize_segments.peak", "max_split_size"):
        assert name in found


def test_memory_stats_tells_the_pools_apart() -> None:
    pool.empty_cache()
    stats.reset_peak_memory_stats()
    before = stats.memory_stats()
    small = Owner(1000, host)
    big = pool.take(400_000_000)
    host.charge(big.nbytes, big)
    after = stats.memory_stats()
    change = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    for metric in ("current", "allocated", "peak"):
        assert change[f"allocated_bytes.all.{metric}"] == 382 * MIB + 1000
        assert change[f"allocated_bytes.large_pool.{metric}"] == 382 * MIB
        assert change[f"allocated_bytes.small_pool.{metric}"] == 1000
        assert change[f"requested_bytes.all.{metric}"] == 400_000_000 + 1000
        assert change[f"reserved_bytes.all.{metric}"] == 382 * MIB + 1000
        assert change[f"allocation.all.{metric}"] == 2
        assert change[f"allocation.large_pool.{metric}"] == 1
        assert change[f"segment.all.{metric}"] == 1
    assert change["num_device_alloc"] == 1
    assert not [key for key in change if key.endswith(".freed")]
    host.refund(big.nbytes, id(big))
    del small, big
    end = stats.memory_stats()
    assert end["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    assert end["reserved_bytes.all.current"] >= 382 * MIB
    pool.empty_cache()


def test_sums_start_anew() -> None:
    Owner(1000, host)
    stats.reset_accumulated_memory_stats()
    assert stats.memory_stats()["allocated_bytes.all.allocated"] == 0
    Owner(70, host)
    found = stats.memory_stats()
    assert found["allocated_bytes.all.allocated"] == found["allocated_bytes.all.freed"] == 70
    assert found["allocation.all.allocated"] == 1
    stats.reset_accumulated_memory_stats()
    assert stats.memory_stats()["allocated_bytes.all.allocated"] == 0


def test_the_summary_is_a_table() -> None:
    lines = stats.memory_summary().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(stats.memory_summary(abbreviated=True)) < len("\n".join(lines))
    row = next(line for line in lines if line.startswith("| Allocated memory"))
    assert readable(host.allocated) in row


# -- lines ----------------------------------------------------------------------------------------


def our_code(source: str, filename: str) -> dict[str, Any]:
    """Names that `source` defines, as if it stood in a file of the package."""
    space: dict[str, Any] = {"sites": sites}
    exec(compile(source, filename, "exec"), space)
    return space


OURS = sites.__file__.replace("sites.py", "made_up.py")


@pytest.mark.parametrize("filename", [OURS, "<skimp op clone>"])
@pytest.mark.parametrize(
    ("function", "op"),
    [("relu_", "relu_"), ("__add__", "add"), ("__radd__", "add"), ("__imul__", "mul_"),
     ("__getitem__", "getitem"), ("__len__", "__len__"), ("__invert__", "bitwise_not")],
)  # fmt: skip
def test_the_line_and_the_op(filename: str, function: str, op: str) -> None:
    inner = our_code("def helper(): return sites.find()", OURS)["helper"]
    space = our_code(f"def {function}(inner): return inner()", filename)
    found = space[function](inner)
    line = sys._getframe().f_lineno - 1
    assert found == Site(HERE, line, op)
    assert str(found) == f"{op} at {HERE}:{line}"


def test_a_function_made_from_a_row_can_be_named() -> None:
    source = """
def make(op):
    @sites.named(op)
    def f():
        return sites.find()
    return f
"""
    make = our_code(source, OURS)["make"]
    f, g = make("exp"), make("log")
    assert (f().op, g().op) == ("exp", "log")


def test_without_a_line_there_is_still_an_op() -> None:
    assert str(Site("", 0, "relu")) == "relu"
