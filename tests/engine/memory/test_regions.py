"""Regions and copies: what a part of a program did to memory."""

from __future__ import annotations

import sys
import threading

import pytest

from skimp._engine.memory import copies, ledger, stats
from skimp._engine.memory.ledger import Ledger, host
from skimp._engine.memory.regions import Region, region
from skimp.errors import CopyError, OutOfMemoryError
from tests.support.books import Log, Owner


@pytest.fixture
def book() -> Ledger:
    return Ledger("test")


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


def test_deferred_storages_materialize_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(ledger, "before_reading", [lambda: calls.append(1)])
    monkeypatch.setattr(ledger, "before_counting", [lambda: calls.append(1)])
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
        raise OutOfMemoryError("asked too much")

    failed, ended = region("failed").__enter__(), region("ended").__enter__()
    monkeypatch.setattr(ledger, "before_reading", [fails])
    failed.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert failed.allocated == 0
    with pytest.raises(OutOfMemoryError, match="asked too much"):
        ended.__exit__(None, None, None)
    assert ended.seconds > 0


# -- copies ---------------------------------------------------------------------------------------


def test_copies_are_counted_and_told() -> None:
    log = Log()
    host.watch(log)
    try:
        with region() as r:
            copies.told(12, "reshape", lambda: "reshape of a tensor with strides (1, 3)", None)
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
    assert log.events[-1][4][:2] == (__file__, line)


def test_no_copies_refuses_with_numbers_before_anything_is_counted() -> None:
    before = (host.copied, host.copies)
    with copies.no_copies(), copies.no_copies(), pytest.raises(RuntimeError) as refused:
        copies.told(24, "reshape", lambda: "reshape of a tensor with strides (1, 3)", None)
    assert isinstance(refused.value, CopyError)
    assert (host.copied, host.copies) == before
    message = str(refused.value)
    assert message.startswith(f"no_copies: reshape at {__file__}:")
    assert " has to copy 24 bytes: reshape of a tensor with strides (1, 3). " in message
    copies.told(1, "reshape", lambda: "allowed again", None)
    assert host.copies == before[1] + 1


def test_no_copies_is_for_one_thread() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            copies.told(1, "contiguous", lambda: "on another thread", None)
        except CopyError as error:
            failed.append(error)

    with copies.no_copies():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert failed == []
