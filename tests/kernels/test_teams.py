"""Who works together rests once that has cost more than it saved, longer each time in vain."""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import Any

import pytest

from skimp._kernels import sharing, teams, threads
from skimp.config import config


class Clock:
    """Seconds, and how many of them the thread had a core."""

    def __init__(self) -> None:
        self.wall = self.core = 100.0

    def work(self, seconds: float, waited: float = 0.0) -> None:
        began = teams.begin()
        self.wall += seconds + waited
        self.core += seconds
        teams.end(began)

    def resting(self) -> float:
        """How long they rest now."""
        began = self.wall
        while teams.size(2) == 1:
            self.wall += teams._SHORT / 2
        return self.wall - began


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(teams, "perf_counter", lambda: clock.wall)
    monkeypatch.setattr(teams, "thread_time", lambda: clock.core)
    monkeypatch.setattr(teams.account, "saved", 0.0)
    monkeypatch.setattr(teams.account, "until", 0.0)
    monkeypatch.setattr(teams, "_rest", teams._SHORT)
    monkeypatch.setattr(teams.account, "awake", 0.0)
    monkeypatch.setattr(teams, "_missed", 0.0)
    monkeypatch.setattr(teams, "_close", 0.0)
    return clock


def test_all_work_together_as_long_as_nobody_is_late(clock: Clock) -> None:
    for waited in (0.0, 0.9 * teams._LATE):
        clock.work(0.5, waited)
        assert teams.size(4) == 4
    assert teams.size(1) == 1


def test_who_sleeps_is_woken_for_what_is_long_alone(clock: Clock) -> None:
    def together(seconds: float) -> bool:
        found = teams.size(4, seconds) == 4
        assert (teams.gathered(seconds) is not None) is found
        clock.wall += 2 * (teams._SPIN + seconds)  # what was missed is forgotten
        return found

    short, long = 0.5 * teams._WAKE, 2 * teams._WAKE
    assert [together(seconds) for seconds in (long, short)] == [True, False]
    clock.work(0.5)
    assert together(short)
    assert not together(short)


def test_a_short_work_does_not_ask_for_the_time_of_a_core(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = teams.begin()
    monkeypatch.delattr(teams, "thread_time")
    clock.wall += 0.9 * teams._LATE
    teams.end(began)
    assert teams.account.saved == pytest.approx(0.45 * teams._LATE)
    clock.wall += 0.2 * teams._LATE
    with pytest.raises(NameError):
        teams.end(began)


def test_who_is_late_at_once_has_them_rest(clock: Clock) -> None:
    clock.work(0.001, 0.003)
    assert teams.size(4) == 1
    clock.wall += teams._SHORT
    assert teams.size(4) == 4


def test_who_is_late_once_in_many_works_costs_less_than_a_rest(clock: Clock) -> None:
    for _ in range(20):
        for _ in range(50):
            clock.work(0.0004)  # saves 10 ms in all
        clock.work(0.0014, 0.003)
        assert teams.size(2) == 2


def test_what_was_saved_long_ago_pays_for_three_slices_and_no_more(clock: Clock) -> None:
    for _ in range(1000):
        clock.work(0.001)
    for _ in range(3):
        clock.work(0.001, 0.003)
        assert teams.size(2) == 2
    clock.work(0.001, 0.003)
    assert teams.size(2) == 1


def test_work_that_takes_much_longer_than_somebody_is_late_saves_all_the_same(clock: Clock) -> None:
    for _ in range(10):
        clock.work(0.02, 0.003)
        assert teams.size(2) == 2


def test_a_rest_in_vain_is_followed_by_a_longer_one_up_to_a_second(clock: Clock) -> None:
    rests = []
    for _ in range(10):
        clock.work(0.001, 0.003)
        rests.append(clock.resting())
    assert rests[:3] == pytest.approx([0.02, 0.04, 0.08])
    assert rests[-1] == pytest.approx(teams._LONG)
    for _ in range(3):  # all were there, for once
        clock.work(0.001)
    clock.work(0.001, 0.003)
    assert clock.resting() == pytest.approx(teams._LONG)
    for _ in range(11):  # for a second
        clock.work(0.1)
    clock.work(0.001, 1.0)
    assert clock.resting() == pytest.approx(teams._SHORT)


def test_a_team_that_is_disbanded_stays_so(clock: Clock) -> None:
    teams.disband()
    clock.work(0.001, 0.003)
    clock.wall += 3600.0
    assert teams.size(8) == 1


def test_short_works_close_to_each_other_wake_who_sleeps(clock: Clock) -> None:
    seconds = teams._WAKE  # of which half would be saved
    assert not teams.worth(seconds)
    clock.wall += seconds + 2 * teams._SPIN
    assert not teams.worth(seconds)
    clock.wall += seconds + 0.9 * teams._SPIN  # they would have been awake
    assert teams.worth(seconds)
    assert not teams.worth(seconds)  # what was missed is forgotten
    teams.done(clock.wall, seconds)
    assert teams.worth(seconds)  # they are awake
    clock.wall += 2 * teams._SPIN
    assert teams.worth(2 * seconds)  # long by itself


def test_who_is_late_with_short_works_has_them_rest(clock: Clock) -> None:
    seconds, began = 20e-6, clock.wall
    clock.wall += seconds / 2
    teams.done(began, seconds)
    assert teams.size(4) == 4
    began = clock.wall
    clock.wall += 10 * teams._NEAR
    clock.core += 10 * teams._NEAR  # who waits awake has a core
    teams.done(began, seconds)
    assert teams.size(4) == 1
    assert not teams.worth(1.0)


def test_that_who_sleeps_is_late_is_no_reason_to_rest_at_first(clock: Clock) -> None:
    def wake() -> None:
        seconds = 20e-6
        while not (began := teams.worth(seconds)):
            clock.wall += seconds
        clock.wall += teams._WAKE + teams._NEAR
        clock.core += teams._WAKE + teams._NEAR
        teams.done(began, seconds)

    teams.account.saved = teams._CREDIT
    wake()
    assert teams.worth(1e-6)  # they are there
    while teams.worth(1e-6):  # as often as they slept again
        clock.wall += 2 * teams._SPIN
        wake()
    clock.resting()
    wake()
    assert teams.worth(1e-6)


def test_memory_that_is_waited_for_is_no_reason_to_rest(clock: Clock) -> None:
    began = teams.worth(0.01)
    clock.wall += 0.05
    clock.core += 0.05
    teams.done(began, 0.01)
    assert teams.size(4) == 4
    began = teams.worth(0.01)
    clock.wall += 0.05
    clock.core += 0.005
    teams.done(began, 0.01)  # who is waited for asleep has none
    assert teams.size(4) == 1


@pytest.mark.parametrize("call", [sharing._call, sharing.call])
def test_python_and_c_keep_one_account(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("saved", 1e-4), ("until", 0.0), ("awake", inf)):
        monkeypatch.setattr(teams.account, name, value)
    monkeypatch.setattr(config, "threads", 3)

    def work(*args: Any) -> Any:
        return args

    few, many = sharing.FROM - 1, sharing.FROM
    assert call(work, few, 1e-9, "a") == ("a", 1)
    assert (teams.account.saved, teams.account.awake) == (1e-4, inf)
    assert call(work, many, 1e-9, "a", "b") == ("a", "b", 3)
    assert teams.account.saved > 1e-4
    assert perf_counter() < teams.account.awake + 1 < inf
    saved = teams.account.saved
    assert call(work, many, 1e-8) == (3,)  # long
    assert teams.account.saved > saved
    teams.account.awake = 0.0
    assert call(work, many, 1e-12) == (1,)  # not worth that they are woken
    monkeypatch.setattr(threads._here, "apart", True)
    teams.account.awake = inf
    assert call(work, many, 1e-9) == (1,)
    monkeypatch.setattr(threads._here, "apart", False)
    teams.account.until = inf
    assert call(work, many, 1e-9) == (1,)
    with pytest.raises(ZeroDivisionError):
        call(lambda _: 1 // 0, many, 1e-9)
