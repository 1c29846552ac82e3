"""The report: what its collector counts, and how it is shown."""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from skimp import lens as report
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import Ledger
from skimp.lens.collect import Collector
from skimp.lens.sections import ROWS
from tests.support.steps import breaks_between

LOAD, RELU, COPY = (
    Site("train.py", 3, "randn"),
    Site("train.py", 7, "relu"),
    Site("a.py", 9, "copy"),
)


class Clock:
    """Seconds go by only when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Program:
    """A ledger, somebody who listens to it, and owners of bytes that go by a name."""

    def __init__(self, before: int = 0) -> None:
        self.ledger = Ledger("cpu")
        self.owners: dict[object, tuple[Owner, int]] = {}
        if before:
            self.take("before", before, LOAD)
        self.clock = Clock()
        self.collector = Collector(self.ledger, self.clock)
        self.ledger.watch(self.collector)

    def take(self, name: object, nbytes: int, site: Site) -> None:
        owner = Owner(site)
        self.owners[name] = owner, nbytes
        self.ledger.charge(nbytes, owner)

    def drop(self, name: object) -> None:
        owner, _ = self.owners.pop(name)
        self.ledger.refund(owner)

    def report(self) -> report.Report:
        return report.make("program.py", self.collector)


class Owner:
    def __init__(self, site: Site) -> None:
        self.site = site


def held(result: report.Report) -> dict[tuple[int, str], tuple[int, int]]:
    return {(h.place.line, h.place.op): (h.bytes, h.allocations) for h in result.peak.held}


# -- collecting -----------------------------------------------------------------------------------


def test_the_peak_names_what_was_live_then_and_not_what_came_later() -> None:
    program = Program()
    program.take("x", 100, LOAD)
    program.take("y", 50, RELU)  # the peak: 150
    program.drop("x")
    program.take("z", 99, COPY)
    result = program.report()
    assert result.peak.bytes == program.ledger.peak == 150
    assert held(result) == {(3, "randn"): (100, 1), (7, "relu"): (50, 1)}
    assert (result.live, result.allocations, result.allocated) == (149, 3, 249)


def test_the_peak_is_its_first_moment() -> None:
    program = Program()
    program.clock.now += 1
    program.take("x", 10, LOAD)
    program.drop("x")
    program.clock.now += 1
    program.take("y", 10, RELU)
    program.clock.now += 1
    result = program.report()
    assert (result.peak.seconds, result.peak.place.line, result.seconds) == (1.0, 3, 3.0)


def test_what_was_allocated_before_is_counted_as_such() -> None:
    program = Program(before=40)
    program.take("x", 10, LOAD)
    program.drop("before")
    program.ledger.unwritten += 5
    result = program.report()
    assert (result.peak.bytes, result.live, result.unwritten) == (50, 10, 5)
    assert (result.allocations, result.allocated) == (1, 10)
    assert held(result) == {(0, "before the report began"): (40, 1), (3, "randn"): (10, 1)}


def test_bytes_that_change_hands_are_no_new_allocation() -> None:
    program = Program()
    program.take("x", 10, LOAD)
    taker = Owner(RELU)
    program.ledger.handed(10, id(program.owners["x"][0]), taker)
    result = program.report()
    assert (result.peak.bytes, result.allocations, result.live) == (10, 1, 10)
    assert held(result) == {(3, "randn"): (10, 1)}


def test_an_owner_whose_number_is_used_again_is_a_new_owner() -> None:
    collector = Collector(Ledger("cpu"))
    collector.allocated(1, 10, LOAD)
    collector.freed(1, 10)
    collector.allocated(1, 20, RELU)
    assert held(report.make("p", collector)) == {(7, "relu"): (20, 1)}


def test_copies_add_up_by_line_op_and_reason() -> None:
    program = Program()
    for nbytes in (8, 16):
        program.ledger.copy(nbytes, "reshape", "strides (1, 3)")
    program.collector.copied(100, "clone", "asked for", COPY)
    result = program.report()
    assert [(c.place.op, c.reason, c.bytes, c.times) for c in result.copies] == [
        ("copy", "asked for", 100, 1),  # as the program called it, not what copied
        ("copy", "strides (1, 3)", 24, 2),
    ]
    assert result.copied == 124
    assert result.copies[1].place.file == __file__


MANY = 2048
SITES = (LOAD, RELU, COPY, Site("", 0, "add"))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(SITES), st.integers(0, 1000)),  # allocate
        st.integers(0, 50),  # free one of those that are live
    ),
    max_size=60,
)


@given(EVENTS)
def test_the_peak_is_exact_for_any_program(events: list[tuple[Site, int] | int]) -> None:
    program = Program()
    live: dict[int, tuple[Site, int]] = {}
    peak, at_peak = 0, Counter[Site]()
    for number, event in enumerate(events):
        if isinstance(event, tuple):
            live[number] = event
            program.take(number, event[1], event[0])
        elif live:
            owner = list(live)[event % len(live)]
            del live[owner]
            program.drop(owner)
        total = sum(nbytes for _, nbytes in live.values())
        if total > peak:
            peak, at_peak = total, Counter()
            for site, nbytes in live.values():
                at_peak[site] += nbytes
    result = program.report()
    assert (
        result.peak.bytes == program.ledger.peak == peak == sum(h.bytes for h in result.peak.held)
    )
    expected = {(site.lineno, site.op): nbytes for site, nbytes in at_peak.items() if nbytes}
    assert {place: total[0] for place, total in held(result).items()} == expected
    assert result.live == program.ledger.allocated


def test_no_event_is_lost_between_threads() -> None:
    program = Program()

    def work(base: int) -> None:
        for i in range(MANY):
            program.take(base + i, 3, LOAD)
            program.collector.copied(1, "clone", "asked for", LOAD)
        for i in range(MANY):
            program.drop(base + i)

    threads = [threading.Thread(target=work, args=(n * MANY,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result = program.report()
    assert (result.allocations, result.live, result.copied) == (4 * MANY, 0, 4 * MANY)


def test_no_event_is_lost_when_a_storage_dies_inside_of_another_event() -> None:
    """The garbage collector may free storages in the middle of the collector's own work."""
    program = Program()

    class Dies:
        def __init__(self) -> None:
            self.site, self.me = LOAD, self  # a cycle: only the garbage collector ends it
            program.ledger.charge(3, self)

        def __del__(self) -> None:
            program.ledger.refund(self)

    old = gc.get_threshold()
    gc.set_threshold(20)
    try:
        for _ in range(3 * MANY):
            Dies()
    finally:
        gc.set_threshold(*old)
    gc.collect()
    result = program.report()
    assert (result.live, result.allocations) == (0, 3 * MANY)


@pytest.mark.parametrize(
    ("function", "first", "last"),
    [
        (Collector.allocated, "live.order = record.order", "if live.went:"),
        (Collector.freed, "live.order = order", "live.total = "),
    ],
)
def test_an_event_counts_whole(function: Any, first: str, last: str) -> None:
    assert list(breaks_between(function, first, last)) == []


# -- showing --------------------------------------------------------------------------------------


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> report.Report:
    monkeypatch.chdir(tmp_path)  # paths are short from there
    source = tmp_path / "train[1].py"
    source.write_text("x = 1\nbatch = randn(100, 1000)  # [red]\n")
    program = Program()
    program.clock.now += 0.25
    program.take("x", 400_000, Site(str(source), 2, "randn"))
    for line in range(ROWS + 4):
        program.collector.copied(
            2048, "reshape", "strides (1, 3)", Site("lib.py", line + 1, "reshape")
        )
    program.ledger.unwritten += 3 * 1024**2
    program.clock.now += 1.5
    return report.make("train[1].py", program.collector)


def test_text_says_everything_in_plain_characters(result: report.Report) -> None:
    text = report.to_text(result)
    assert "skimp: train[1].py, 1.750 s" in text
    assert "400,000 bytes, reached after 0.250 s" in text
    assert "batch = randn(100, 1000)  # [red]" in text
    assert "3.00 MiB" in text
    assert "4 more places" in text
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_file_gets_plain_text(result: report.Report, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    file = StringIO()
    report.show(result, file)
    assert file.getvalue() == report.to_text(result, ())


def test_a_terminal_gets_colours(result: report.Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = StringIO()
    monkeypatch.setattr(file, "isatty", lambda: True, raising=False)
    report.show(result, file)
    assert "\x1b[" in file.getvalue()


def test_json_has_every_figure_as_a_number(result: report.Report) -> None:
    data = json.loads(report.to_json(result))
    assert data["peak"]["bytes"] == data["peak"]["held"][0]["bytes"] == 400_000
    assert data["peak"]["seconds"] == 0.25
    assert data["peak"]["place"]["line"] == 2
    assert data["copied"] == sum(copy["bytes"] for copy in data["copies"]) == 2048 * (ROWS + 4)
    assert data["unwritten"] == 3 * 1024**2


def test_a_program_without_tensors_has_a_report() -> None:
    assert "nothing was allocated" in report.to_text(Program().report())
