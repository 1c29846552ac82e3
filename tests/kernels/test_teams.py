"""Who works together rests when somebody was late, longer each time, and not once all are there."""

from __future__ import annotations

import pytest

from skimp._kernels import teams


class Clock:
    """Seconds, and how many of them the thread had a core."""

    def __init__(self) -> None:
        self.wall = self.core = 100.0

    def work(self, seconds: float, waited: float = 0.0) -> None:
        began = teams.begin()
        self.wall += seconds + waited
        self.core += seconds
        teams.end(began)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(teams, "perf_counter", lambda: clock.wall)
    monkeypatch.setattr(teams, "thread_time", lambda: clock.core)
    monkeypatch.setattr(teams, "_until", 0.0)
    monkeypatch.setattr(teams, "_rest", teams._SHORT)
    return clock


def test_all_work_together_as_long_as_nobody_is_late(clock: Clock) -> None:
    for waited in (0.0, 0.9 * teams._LATE):
        clock.work(0.5, waited)
        assert teams.size(4) == 4
    assert teams.size(1) == 1


def test_who_waits_for_a_core_has_them_rest(clock: Clock) -> None:
    clock.work(0.001, 2 * teams._LATE)
    assert teams.size(4) == 1
    clock.wall += teams._SHORT
    assert teams.size(4) == 4


def test_a_rest_in_vain_is_followed_by_a_longer_one_up_to_a_second(clock: Clock) -> None:
    rests = []
    for _ in range(10):
        clock.work(0.001, 2 * teams._LATE)
        began = clock.wall
        while teams.size(2) == 1:
            clock.wall += teams._SHORT / 2
        rests.append(clock.wall - began)
    assert rests[:3] == pytest.approx([0.02, 0.04, 0.08])
    assert rests[-1] == pytest.approx(teams._LONG)
    clock.work(0.001)  # all were there, for once
    clock.work(0.001, 2 * teams._LATE)
    clock.wall += 0.99 * teams._LONG
    assert teams.size(2) == 1
    clock.wall += teams._LONG
    for _ in range(10):  # for a second
        clock.work(0.1)
    clock.work(0.001, 1.0)
    clock.wall += teams._SHORT
    assert teams.size(2) == 2


def test_a_team_that_is_disbanded_stays_so(clock: Clock) -> None:
    teams.disband()
    clock.work(0.001, 2 * teams._LATE)
    clock.wall += 3600.0
    assert teams.size(8) == 1
