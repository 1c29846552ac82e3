"""Engines of the benchmark take turns: one at a time, none for ever, and none ends the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bench import process, turns, verdict
from bench.engines import ENGINES, ROOT, Engine
from bench.turns import LEAST, MOST, Turns, figures, parties, take_turns
from bench.worker import Worker

TINY = 100  # what sizes are divided by
NUMPY = ENGINES["numpy"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


# -- the order, with engines and a clock that are not real ----------------------------------------


@dataclass
class Machine:
    """What happened on it, and its time; it is 1.7 times slower for a while, every second."""

    now: float = 0.0
    told: list[tuple[str, str]] = field(default_factory=list)

    def work(self, seconds: float) -> float:
        took = seconds * (1.7 if int(self.now) % 2 else 1.0)
        self.now += took
        return took

    def clock(self) -> float:
        return self.now

    def turns(self) -> list[str]:
        return [engine for engine, words in self.told if words == "turn"]


@dataclass
class Fake:
    """An engine whose calls take so many seconds of a machine; `fails` is a command, and when."""

    name: str
    machine: Machine
    seconds: float
    fails: tuple[str, int] = ("", 0)
    asked: int = 0

    def ask(self, words: str) -> dict[str, Any]:
        self.machine.told.append((self.name, words))
        self.asked += words == self.fails[0]
        if words == self.fails[0] and self.asked > self.fails[1]:
            return {"error": "no"}
        if words == "turn":
            return {"seconds": self.machine.work(self.seconds)}
        return {"extra_mib": 1.0} if words == "end" else {}


def fakes(machine: Machine, **seconds: float) -> dict[str, Fake]:
    return {name: Fake(name, machine, each) for name, each in seconds.items()}


def test_turns_alternate() -> None:
    machine = Machine()
    workers = fakes(machine, a=0.01, b=0.02, c=0.03)
    taken, told = take_turns("exp", workers, seconds=0.0, clock=machine.clock)
    assert len(taken) == LEAST
    assert machine.turns() == [*"abc", *"cba", *"abc"]
    assert machine.told[:6] == [(n, "prepare exp") for n in "abc"] + [(n, "warm") for n in "abc"]
    assert machine.told[-3:] == [(n, "end") for n in "abc"]
    assert told == {n: {"extra_mib": 1.0} for n in "abc"}


@pytest.mark.parametrize(
    ("each", "count"), [(0.001, MOST), (0.03, 17), (3.0, LEAST)], ids=["most", "budget", "least"]
)
def test_there_are_as_many_turns_as_time_allows(each: float, count: int) -> None:
    machine = Machine()
    workers = fakes(machine, a=each, b=each)
    assert len(take_turns("exp", workers, seconds=0.5, clock=machine.clock)[0]) == count


def test_ratios_do_not_follow_the_moods_of_the_machine() -> None:
    machine = Machine()
    taken, told = take_turns("exp", fakes(machine, a=0.05, b=0.1), 3.0, machine.clock)
    found = figures(taken, told)
    assert max(found["a"]["slices"]) == pytest.approx(1.7 * min(found["a"]["slices"]))
    assert verdict.ratio_within(found["a"], found["b"]) == pytest.approx(0.5)
    assert found["a"]["extra_mib"] == 1.0


@pytest.mark.parametrize(
    ("fails", "left"),
    [(("prepare exp", 0), 0), (("warm", 0), 0), (("turn", 1), 1), (("end", 0), LEAST)],
)
def test_an_engine_that_fails_does_not_end_the_others(fails: tuple[str, int], left: int) -> None:
    machine = Machine()
    workers = fakes(machine, a=0.01, b=0.01, c=0.01)
    workers["b"].fails = fails
    taken, told = take_turns("exp", workers, seconds=0.0, clock=machine.clock)
    assert sum("b" in turn for turn in taken) == left
    found = figures(taken, told)
    assert found["b"] == {"error": "no"}
    assert len(found["a"]["slices"]) == len(found["c"]["slices"]) == LEAST
    assert machine.told[-1] == ("c", "end")


def test_turns_end_when_all_have_failed() -> None:
    machine = Machine()
    workers = {"a": Fake("a", machine, 0.01, fails=("turn", 1))}
    taken, told = take_turns("exp", workers, seconds=9.0, clock=machine.clock)
    assert figures(taken, told) == {"a": {"error": "no"}}


def test_little_memory_means_fewer_together(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = list(ENGINES.values())
    names = [[e.name for e in party] for party in parties(engines, room=3)]
    assert names == [
        ["skimp", "torch", "torch+thp"],
        ["skimp", "torch+jemalloc", "torch.compile"],
        ["skimp", "numpy"],
    ]
    assert list(parties(engines, room=6)) == [engines]
    for free, room in ((5 * 2**30, 2), (7 * 2**30, 3), (2**40, 6), (1, 2), (None, 6)):
        monkeypatch.setattr(process, "available", lambda free=free: free)
        assert turns.room_for(6, shrink=1) == room


# -- real processes -------------------------------------------------------------------------------


def test_fewer_together_are_compared_all_the_same() -> None:
    engines = [NUMPY, ENGINES["skimp"], ENGINES["torch"]]
    with Turns(engines, TINY) as taken:
        found = taken.measured("exp", seconds=0.0, room=2)
    slices = {engine: [s is not None for s in found[engine]["slices"]] for engine in found}
    assert slices == {
        "numpy": [True] * 2 * LEAST,
        "skimp": [True] * LEAST + [False] * LEAST,
        "torch": [False] * LEAST + [True] * LEAST,
    }
    assert verdict.ratio_within(found["torch"], found["numpy"]) is not None
    assert verdict.ratio_within(found["torch"], found["skimp"]) is None


def test_errors_of_real_engines_stay_their_own() -> None:
    able = replace(NUMPY, workloads=("exp", "gpt"))  # gpt it says, but there is no code
    lost = replace(ENGINES["torch"], environment={"PYTHONHOME": "/nowhere"})
    with Turns([able, lost], TINY) as taken:
        found = {name: taken.measured(name, seconds=0.0) for name in ("gpt", "exp", "conv")}
    assert found["gpt"]["numpy"] == {"error": "KeyError: 'gpt'"}
    assert set(found["exp"]["numpy"]) >= {"seconds", "slices"}
    assert set(found["conv"]) == {"torch"}  # what an engine has no code for is left out
    assert {each["torch"]["error"][:6] for each in found.values()} == {"exit 1"}


def state(pid: int) -> str:
    """R, S, T (stopped) and so on; empty if there is no such process, or only its status left."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if letter in "ZX" else letter


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def family(pid: int) -> list[int]:
    """The process, and those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in family(int(child)))]


def numpy_with(code: str, folder: Path) -> Engine:
    """NumPy by hand in processes that run this code first."""
    (folder / "sitecustomize.py").write_text(code)
    return replace(NUMPY, environment={"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"})


@linux
def test_who_waits_is_stopped() -> None:
    with Worker(NUMPY, TINY) as worker:
        assert worker.ask("prepare mm") == {}
        pids = family(worker.pid)
        assert len(pids) == 2  # what loads, and its fork for the workload
        assert soon(lambda: [state(pid) for pid in pids] == ["T", "T"])
        assert worker.ask("warm") == {}
        assert worker.ask("turn")["seconds"] > 0
        assert soon(lambda: [state(pid) for pid in pids] == ["T", "T"])
        assert set(worker.ask("end")) == {"cpu", "extra_mib"}
        assert soon(lambda: family(worker.pid) == pids[:1])  # its memory is free again
        assert worker.ask("prepare exp") == {}
        assert pids[1] not in family(worker.pid)  # each has its own
        pids += family(worker.pid)
    assert soon(lambda: {state(pid) for pid in pids} == {""})


@linux
def test_what_hangs_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    hangs = (
        "import pathlib, subprocess\n"
        "started = subprocess.Popen(['sleep', '300'])\n"
        f"pathlib.Path({str(told)!r}).write_text(f'{{started.pid}} is it')\n"
        "started.wait()\n"
    )
    with Worker(numpy_with(hangs, tmp_path), TINY, timeout=0.5) as worker:
        assert soon(lambda: told.exists() and told.read_text().endswith("it"))
        started = int(told.read_text().split()[0])
        assert state(started)
        late = {"error": "took more than 0 s"}
        assert worker.ask("prepare exp") == late
        assert soon(lambda: state(worker.pid) == state(started) == "")
        assert worker.ask("warm") == late


def test_a_crash_ends_one_workload(tmp_path: Path) -> None:
    crashes = "import numpy, os\nnumpy.exp = lambda *a, **k: os.abort()\n"
    with Turns([numpy_with(crashes, tmp_path)], TINY) as taken:
        found = [taken.measured(name, seconds=0.0)["numpy"] for name in ("relu", "exp", "relu_")]
    assert found[1] == {"error": "exit -6: no message"}
    assert all("seconds" in figures for figures in (found[0], found[2]))


@linux
def test_a_killed_parent_leaves_nobody_stopped() -> None:
    program = (
        "import time\n"
        "from bench.engines import ENGINES\n"
        "from bench.worker import Worker\n"
        "worker = Worker(ENGINES['numpy'], 100)\n"
        "print(worker.ask('prepare exp'), worker.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout
        answer, pid = parent.stdout.readline().split()
        assert answer == "{}"
        pids = family(int(pid))
        assert soon(lambda: [state(pid) for pid in pids] == ["T", "T"])
        os.kill(parent.pid, signal.SIGKILL)
    assert soon(lambda: {state(pid) for pid in pids} == {""})


def test_what_libraries_print_is_no_answer(tmp_path: Path) -> None:
    chatty = (
        "import numpy\n"
        "exp = numpy.exp\n"
        "numpy.exp = lambda *a, **k: (print('{\"seconds\": 1', end=''), exp(*a, **k))[1]\n"
    )
    with Worker(numpy_with(chatty, tmp_path), TINY) as worker:
        assert [worker.ask(words) for words in ("prepare exp", "warm")] == [{}, {}]
        assert set(worker.ask("turn")) == {"seconds"}
