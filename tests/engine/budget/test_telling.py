"""What the budget says: errors with the smallest budget, one warning, the report, checksums."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import skimp as torch
from skimp import lens
from skimp._engine.budget import choice, recipes, setting, telling
from skimp._engine.budget.statistics import Counts, Outcome, counts
from skimp._engine.memory.caching import pool
from skimp._engine.memory.call_site import Site
from skimp._engine.memory.ledger import host
from skimp.cli import fit
from skimp.errors import OutOfMemoryError
from skimp.lens.sections import SECTIONS
from tests.engine.budget.holding import MIB, N, held, is_away, numbers
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted, and what must be there at once, follows the mode

TRAIN = """
import torch
torch.manual_seed(0)
blocks = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(6)]
net = torch.nn.Sequential(*blocks)
x = torch.randn(1024, 256)
for _ in range(2):
    net.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
print(loss.item())
"""


def test_an_op_below_its_floor_says_what_it_needs_and_the_budget_that_fits() -> None:
    a, b = numbers(0).view(512, 512), numbers(1).view(512, 512)
    base = host.allocated - 2 * MIB
    with torch.memory.budget(base + 2 * MIB), pytest.raises(OutOfMemoryError) as refused:
        a @ b
    text = str(refused.value)
    assert "This op needs 3.00 MiB at once, and the budget is 2.00 MiB" in text
    assert f"{__file__}:" in text
    assert "The smallest budget in which it fits is about 3.50 MiB" in text
    with torch.memory.budget(base + 7 * MIB // 2):
        assert (a @ b).shape == (512, 512)


def test_an_optimizer_below_its_floor_says_at_once_what_one_parameter_needs() -> None:
    """The parameter, its gradient and both averages: 4 MiB, whichever of them is read first."""

    def train(budget: int | None) -> list[float]:
        torch.manual_seed(0)
        weights = [torch.randn(512, 512, requires_grad=True) for _ in range(6)]
        optimizer = torch.optim.Adam(weights)
        setting.set_budget(budget)
        try:
            for _ in range(2):
                for w in weights:
                    w.grad = torch.ones(512, 512)
                optimizer.step()
        finally:
            setting.set_budget(None)
        return [w.sum().item() for w in weights]

    wanted = train(None)
    pool.empty_cache()
    base = host.allocated
    with pytest.raises(OutOfMemoryError) as refused:
        train(base + 5 * MIB // 2)
    needed, fits = re.search(  # type: ignore[union-attr]
        r"needs ([\d.]+) MiB at once.*fits is about ([\d.]+) MiB", str(refused.value), re.DOTALL
    ).groups()
    del refused
    assert float(needed) == pytest.approx(4 + base / MIB, abs=0.1)
    assert train(int(float(fits) * MIB)) == wanted


def test_after_a_step_one_refusal_tells_what_fits_the_whole_program() -> None:
    """Its first op is small; what comes later needs more, and says so by its line."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 1024))
    x = torch.ones(512, 64)

    def step() -> float:
        net.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss.item()

    setting.set_budget(1 << 40, spill=False)  # which notes all ops
    wanted = step()
    setting.set_budget(MIB // 2)
    with pytest.raises(OutOfMemoryError) as refused:
        step()
    text = str(refused.value)
    del refused
    op, line, fits = re.search(  # type: ignore[union-attr]
        r"(\w+) at (\S+) needs more, .*: what has run so far fits in about ([\d.]+) MiB", text
    ).groups()
    assert op in ("backward", "linear")
    assert line.startswith(__file__)
    assert "Ops that have not run yet may need more: `skimp fit`" in text
    assert float(fits) < 9
    setting.set_budget(int(float(fits) * MIB))
    assert [step() for _ in range(3)] == [wanted] * 3
    setting.set_budget(None)


def test_what_an_op_reads_and_what_stays_count_once_and_no_more_than_there_was_is_named() -> None:
    x = numbers(0, 4 * N).view(1024, 1024)  # data, which stays without a file
    base = host.allocated - 4 * MIB

    def run() -> None:
        x @ x
        x[:256] @ x

    setting.set_budget(1 << 40, spill=False)  # which notes all ops
    host.reset_peak()
    run()
    peak = host.peak
    setting.set_budget(base + 9 * MIB // 2, spill=False)
    with pytest.raises(OutOfMemoryError) as refused:
        x[:256] @ x
    text = str(refused.value)
    del refused
    found = re.search(
        r"matmul at .* needs more, .*: what has run so far fits in .* ([\d.]+) MiB", text
    )
    assert found is not None
    named = int(float(found[1]) * MIB)
    assert named <= peak + MIB // 64
    setting.set_budget(named, spill=False)
    run()
    setting.set_budget(None)


def test_one_warning_where_bringing_back_takes_longer_than_work(monkeypatch: Any) -> None:
    """It names a budget in which nothing has to go."""
    monkeypatch.setattr(telling, "_PATIENCE", 0.01)
    made = [numbers(i) for i in range(6)]

    def look(budget: int) -> None:
        with torch.memory.budget(budget):
            for _ in range(50):
                for t in made:
                    t[0].item()  # nothing beside having 1 MiB back

    with pytest.warns(UserWarning, match="more time goes into having bytes back") as told:
        look(held() - 4 * MIB)
    assert len(told) == 1
    assert told[0].filename == __file__
    wanted = re.search(r"a budget of ([\d.]+) MiB would hold all", str(told[0].message))
    assert wanted is not None
    for t in made:
        t[0].item()
    counts.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look(int((float(wanted[1]) + 0.01) * MIB))  # as it was rounded
    assert not counts.evictions


def test_where_work_takes_longer_nobody_is_warned(monkeypatch: Any) -> None:
    monkeypatch.setattr(telling, "_PATIENCE", 3.0)
    clock = telling.Clock()
    clock.begin()
    clock._began -= 10
    clock._spent -= 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clock.look({}, 0)


def test_whole_steps_are_compared_and_what_one_has_at_once_is_named(monkeypatch: Any) -> None:
    """However long the program did something else before them."""
    monkeypatch.setattr(telling, "_PATIENCE", 3.0)
    now = [0.0]
    monkeypatch.setattr(telling, "perf_counter", lambda: now[0])
    clock = telling.Clock()
    clock.begin()
    rests = SimpleNamespace(block=None, deferred=None, size=4 * MIB)
    monkeypatch.setattr(telling, "away", lambda gone: sum([one.size for one in gone]))

    def step(work: float, spent: float) -> None:
        now[0] += spent
        counts.seconds += spent
        clock.look([rests], MIB)  # in forward
        now[0] += work
        clock.look([], 0)
        clock.ends_step()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        now[0] += 1e3  # of which nothing went
        step(9.0, 1.0)
        for _ in range(3):
            step(2.1, 2.0)
        step(1.0, 2.1)
    with pytest.warns(UserWarning, match=r"\(2.1 s of 3.1 s\) than into work") as told:
        step(1.0, 2.1)
    step(1.0, 2.1)  # once
    assert len(told) == 1
    wanted = float(str(told[0].message).partition("a budget of ")[2].partition(" ")[0])
    assert wanted == pytest.approx(host.reserved_for(5 * MIB) / MIB, abs=0.1)


def test_a_refusal_names_no_other_line_for_the_same_budget() -> None:
    """It did, with the same number of MiB, for some bytes more."""
    with torch.memory.budget(held() + MIB):
        budget: Any = host.budget
        needed = host.reserved_for(N * 5001)
        telling.floor.see(needed - telling._staying(budget.known, True) + 64)
        assert "needs more" not in budget.explain(N * 5001)
        telling.floor.see(2 * needed, held=3 * needed)
        assert "needs more" in budget.explain(N * 5001)


@pytest.mark.parametrize("spill", [False, True])
def test_a_refusal_says_how_much_can_not_be_made_again(spill: bool) -> None:
    x = numbers(0).view(512, 512)  # data: no op made it
    with torch.memory.budget(held() + 3 * MIB, spill=spill):
        budget: Any = host.budget
        budget.note()
        made = x @ x
        text = budget.explain(1 << 30)
        assert is_away(made) or made._storage.recipe is not None
    stays = re.search(r"([\d.]+) MiB of what is held can't be made again", text)
    assert (stays is None) == spill
    assert spill or "no --no-spill" in text
    assert spill or float(stays[1]) >= 1  # type: ignore[index]


def test_the_report_names_ops_and_lines() -> None:
    counts.reset()
    assert "nothing had to go" in telling.report(MIB)
    with torch.memory.budget(held() + 4 * MIB, spill=False):
        x = numbers(0).view(512, 512)
        made = [x @ x for _ in range(6)]
        assert any(map(is_away, made))
        for t in made:
            t.sum()
    text = telling.report(4 * MIB)
    assert text.startswith("Budget of 4.00 MiB: at most ")
    assert f"matmul at {__file__}:" in text


def test_the_report_has_lines_of_ops_on_the_way_whose_results_nobody_has() -> None:
    counts.reset()
    f = torch.nn.functional
    with torch.memory.budget("1GiB", spill=False):
        x = numbers(0).view(1, 1, 512, 512)
        product = f.conv2d(x, torch.ones(1, 1, 1, 1))
        y = product.cumsum(2)
        del product
        budget: Any = host.budget
        assert budget._evict(y._storage)
        y.sum()
    text = telling.report()
    assert f"conv2d at {__file__}:" in text
    assert "_conv\n" not in text + "\n"


def test_verifying_names_what_is_not_deterministic() -> None:
    with torch.memory.budget("1GiB", verify=True, spill=False):
        x = numbers(0).view(512, 512)
        y = x @ x
        budget: Any = host.budget
        assert budget._evict(y._storage)
        assert (y == x @ x).all()
        assert budget._evict(y._storage)
        recipe = y._storage.recipe[0]
        recipe.run_it = lambda *_: (x @ x + 1).clone()
        with pytest.raises(RuntimeError, match=r"came back as others .* matmul, which has to be"):
            y.sum()
    assert isinstance(recipe, recipes.Recipe)
    assert not isinstance(recipe, recipes.Pointwise)


def test_verifying_names_ops_on_the_way_whose_results_nobody_has() -> None:
    with torch.memory.budget("1GiB", verify=True, spill=False):
        x = numbers(0).view(512, 512)
        product = x @ x
        y = product.cumsum(0)
        beneath = product._storage.recipe[0]
        del product
        beneath.run_it = lambda *_: (x @ x + 1).clone()
        budget: Any = host.budget
        assert budget._evict(y._storage)
        with pytest.raises(RuntimeError, match="made again by matmul and then cumsum, which have"):
            y.sum()


def test_verifying_tells_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "spilling_of", lambda _: 0.0)
    with torch.memory.budget("1GiB", verify=True):
        budget: Any = host.budget
        budget.note()
        y = numbers(0).view(512, 512).cumsum(0)
        assert budget._evict(y._storage)
        y._storage.checksum += 1
        with pytest.raises(RuntimeError, match="they went, read from the file "):
            y.sum()


def run(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    command = [sys.executable, "-m", "skimp", *options, str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_reports_what_the_budget_did(tmp_path: Path) -> None:
    free = run(tmp_path, "run", "--quiet")
    within = run(tmp_path, "run", "--budget", "12MiB", "--no-spill", "--verify")
    assert within.returncode == 0, within.stderr
    assert within.stdout == free.stdout
    assert within.stderr.count("Budget of 12.00 MiB: at most") == 1
    file = tmp_path / "report.json"
    beside = run(tmp_path, "run", "--budget", "9MiB", "--no-spill", "--report", str(file))
    assert "Budget of 9.00 MiB: at most" in beside.stderr
    told = lens.load(file).budget
    assert told is not None
    assert told.budget == 9 * MIB
    assert told.peak <= 9 * MIB
    assert told.rematerialized == sum(one.nbytes for one in told.again if one.way == "made") > 0
    rows = SECTIONS["budget"](lens.load(file)).rows
    assert any(row[3] == "made" and "train.py:" in row[5] for row in rows)


def test_fit_finds_the_smallest_budget(tmp_path: Path) -> None:
    found = run(tmp_path, "fit", "--runs", "3")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("Without a budget: at most ")
    assert "The smallest budget that was found to fit: " in found.stdout
    assert "█" in found.stdout


def test_fit_counts_no_seconds_of_the_start(tmp_path: Path) -> None:
    """Else budgets of short programs look as if they cost little."""
    (tmp_path / "spent.py").write_text(
        "import time\nwith open('began', 'w') as file:\n    file.write(str(time.process_time()))\n"
    )
    with contextlib.chdir(tmp_path):
        found = fit.run(["spent.py"], None, False)
    assert found is not None
    assert 0 < found.seconds < float((tmp_path / "began").read_text())


def test_fit_stops_a_run_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(600)")
    with pytest.raises(subprocess.TimeoutExpired):
        fit.run([str(tmp_path / "sleeps.py")], MIB, False, longest=0.5)


def outcome_of(budget: int | None) -> Outcome:
    return replace(telling.outcome(budget), peak=1000 * MIB, seconds=1.0)


def test_what_was_done_adds_up() -> None:
    counts.reset()
    with torch.memory.budget("1GiB"):
        budget: Any = host.budget
        budget.note()
        x = numbers(0).view(512, 512)
        y = x @ x
        y._storage.recipe[0].seconds = 0.0  # cheaper than the file
        for t in (x, y):
            assert budget._evict(t._storage)
        assert [float(t.sum()) for t in (y, x)]
    one = telling.outcome(4 * MIB)
    assert one.evictions == 2
    assert one.evicted == 2 * one.dropped == 2 * MIB
    for way, total in (("made", one.rematerialized), ("read", one.read), ("written", one.written)):
        parts = [part for part in one.again if part.way == way]
        assert sum([part.nbytes for part in parts]) == total > 0
        assert any([part.lineno and part.op for part in parts])
    assert one.again == tuple(sorted(one.again, key=lambda part: -part.seconds))


def test_an_op_of_a_line_is_told_once_by_its_public_name() -> None:
    """Whether its recipe was known or not, and whatever it is made of."""
    one = Counts()
    site = Site("train.py", 9, "layer_norm")
    one.wrote("", site, 4, 1.0)
    one.wrote("layer_norm", site, 8, 2.0)
    one.wrote("_native_layer_norm", site, 16, 4.0)
    one.wrote("", Site("train.py", 9, "linear"), 1, 0.5)
    told = [(part.op, part.times, part.nbytes, part.seconds) for part in one.again]
    assert told == [("layer_norm", 3, 28, 7.0), ("linear", 1, 1, 0.5)]


def test_the_search_closes_in() -> None:
    asked: list[Any] = []

    def attempt(budget: int) -> fit.Run:
        asked.append(budget)
        if budget < 300 * MIB:
            return fit.Run(budget, None, stopped=True)
        return fit.Run(budget, outcome_of(budget) if budget >= 330 * MIB else None)

    runs = fit.search(1000 * MIB, attempt, 12)
    assert len(runs) == len(asked) <= 12
    fitting = [one.budget for one in runs if one.outcome is not None]
    assert 330 * MIB <= min(fitting) <= 350 * MIB
    text = fit.drawn(outcome_of(None), runs)
    assert "an op needs more" in text
    assert "more than 10 times as long" in fit.drawn(outcome_of(None), [attempt(MIB)])
    assert N
