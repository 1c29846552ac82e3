"""The benchmark does what it says: the work is the same on every engine, the figures add up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from bench import budget, budget_table, charts, clock, growth, page, run, verdict
from bench.byhand import BY_HAND, Array, Arrays
from bench.clock import median_small
from bench.engines import ENGINES, child
from bench.goals import DOCUMENTS, GOALS, README
from bench.limits import TRAFFIC, bandwidths
from bench.results import FOLDER, Results, load, newest, save
from bench.workloads import COMPILED, LARGE, SMALL, WORKLOADS, Kit
from skimp.config import using

TINY = 100  # what sizes are divided by


# -- the work -------------------------------------------------------------------------------------


def outcome(result: Any) -> Array:
    return np.asarray(result.detach() if hasattr(result, "detach") else result)


@pytest.mark.parametrize("name", [n for n in WORKLOADS if n != "us_backward"])
def test_skimp_computes_what_torch_computes(name: str) -> None:
    results = []
    for T in (torch, skimp):
        T.manual_seed(1)
        call = WORKLOADS[name](Kit(T, shrink=TINY))
        call()
        results.append(outcome(call()))
    assert results[1].shape == results[0].shape
    np.testing.assert_allclose(results[1], results[0], rtol=2e-4, atol=1e-5)


class Drawn(Arrays):
    """Inputs for NumPy that are PyTorch's draws, in the order in which the workloads draw."""

    def randn(self, rows: int, columns: int) -> Array:
        drawn: Array = Kit(torch, shrink=self.shrink).randn(rows, columns).numpy()
        return drawn

    def normal(self, *shape: int) -> Array:
        return outcome(torch.randn(*shape))

    def integers(self, high: int, *shape: int) -> Array:
        return outcome(torch.randint(0, high, shape))

    def linear(self, inputs: int, outputs: int) -> tuple[Array, Array]:
        layer = torch.nn.Linear(inputs, outputs)
        return outcome(layer.weight), outcome(layer.bias)


@pytest.mark.parametrize("name", [n for n in BY_HAND if n != "mm_loop"])  # that one draws in NumPy
def test_by_hand_computes_what_torch_computes(name: str) -> None:
    seed = 0 if "mlp" in name else 1
    torch.manual_seed(seed)
    call = WORKLOADS[name](Kit(torch, shrink=TINY))
    torch.manual_seed(seed)
    by_hand = BY_HAND[name](Drawn(TINY))
    for _ in range(3):  # the second and third step of a training see what the first one changed
        expected = outcome(call())
        np.testing.assert_allclose(outcome(by_hand()), expected, rtol=2e-4, atol=1e-5)


def test_every_workload_has_a_goal() -> None:
    assert set(GOALS) == set(WORKLOADS)
    assert set(DOCUMENTS) | set(README) | set(TRAFFIC) | set(COMPILED) | set(BY_HAND) <= set(GOALS)
    assert not set(LARGE) & set(SMALL)


# -- measuring ------------------------------------------------------------------------------------


def test_a_run_from_end_to_end(tmp_path: Path) -> None:
    results = run.begin(["skimp", "numpy"], TINY)
    assert run.run(results, ["us_item", "exp"], rounds=1, growth=False, folder=tmp_path)
    kept = load(newest(tmp_path))
    assert kept.engines == ["skimp", "numpy"]
    assert kept.workloads == ["us_item", "exp"]
    (round_,) = kept.rounds
    assert set(round_["us_item"]["skimp"]) == {"seconds", "slices"}
    assert set(round_["exp"]["numpy"]) >= {"seconds", "slices"}
    assert len(round_["exp"]["numpy"]["slices"]) == len(round_["exp"]["skimp"]["slices"])
    assert round_["exp"]["skimp"]["ledger_mib"] == pytest.approx(40_000 / 2**20, rel=0.01)
    assert set(kept.limits[0]) == {"copy", "update"}
    assert kept.seconds > 0


def test_a_process_that_is_late_is_an_error() -> None:
    late = child("growth", "skimp", "size", engine=ENGINES["skimp"], timeout=0.01)
    assert late == [{"error": "took more than 0 s"}]


def test_an_interrupt_keeps_finished_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_round(results: Results, workloads: list[str], number: int) -> Any:
        if number == 2:
            raise KeyboardInterrupt
        return {"exp": {"skimp": {"seconds": 1.0 + number}}}

    monkeypatch.setattr(run, "one_round", one_round)
    monkeypatch.setattr(run, "bandwidths", lambda shrink: {})
    results = replace(example(), rounds=[], limits=[])
    assert not run.run(results, ["exp"], rounds=3, growth=True, folder=tmp_path)
    kept = load(newest(tmp_path))
    assert [round_["exp"]["skimp"]["seconds"] for round_ in kept.rounds] == [1.0, 2.0]
    assert len(kept.limits) == 2


def test_growth_has_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "LOOP", 1e-4)
    sizes = list(growth.by_size(skimp, shrink=10_000))
    assert [p["x"] for p in sizes if p["work"] == "chain"] == [1, 10, 100, 1000, 10_000]
    forward, backward = growth.by_nodes(skimp, shrink=1000, nodes=10)
    assert (forward["work"], backward["work"]) == ("forward", "backward")
    assert min(forward["seconds"], backward["seconds"]) > 0
    assert list(growth.by_nodes(skimp, shrink=1000, nodes=1000)) == []
    monkeypatch.setattr(growth, "cores", lambda: 5)
    with using():  # puts the number of threads back
        threads = list(growth.by_threads(skimp, shrink=TINY))
    assert [p["x"] for p in threads if p["work"] == "exp"] == [1, 2, 4]


def test_growth_is_printed_as_json() -> None:
    points = child("growth", "skimp", "nodes=10", "--shrink=1000", engine=ENGINES["skimp"])
    assert [(p["curve"], p["work"], p["x"]) for p in points] == [
        ("nodes", "forward", 10),
        ("nodes", "backward", 10),
    ]


def test_small_calls_are_timed_alone() -> None:
    assert 1e-9 < median_small(lambda: None) < 1e-4


def test_limits_are_bandwidths() -> None:
    assert all(speed > 1e6 for speed in bandwidths(TINY).values())


# -- figures --------------------------------------------------------------------------------------


def example() -> Results:
    """Two rounds with figures by hand."""
    rounds = [
        {
            "relu": {
                "skimp": {"seconds": s, "extra_mib": 382.0, "ledger_mib": 382.0},
                "torch": {"seconds": t, "extra_mib": 381.5},
                "torch+thp": {"seconds": h, "extra_mib": 381.6},
            },
            "us_add": {
                "skimp": {"seconds": 1e-6},
                "torch": {"error": "RuntimeError: no"},
                "torch+thp": {"seconds": 2e-6},
            },
        }
        for s, t, h in ((0.02, 0.1, 0.04), (0.03, 0.1, 0.04), (0.04, 0.1, 0.2))
    ]
    machine = {
        "processor": "A processor", "cores": 2, "memory_gib": 8.0, "system": "Linux 6",
        "huge_pages": "madvise", "load": 0.1,
    }  # fmt: skip
    versions = {"Python": "3.11", "torch": "2.13.0", "numpy": "2.1", "skimp": "0.1"}
    engines = ["skimp", "torch", "torch+thp"]
    limits = [{"copy": 4e10, "update": 4e10}] * 3
    points: dict[str, list[dict[str, Any]]] = {
        "skimp": [
            {"curve": "size", "work": "add", "x": 1, "seconds": 1e-6},
            {"curve": "size", "work": "add", "x": 10, "seconds": 1e-6},
            {"curve": "nodes", "work": "forward", "x": 10, "seconds": 1e-6, "bytes": None},
            {"curve": "threads", "work": "add", "x": 1, "seconds": 1.0},
            {"curve": "threads", "work": "add", "x": 2, "seconds": 0.6},
        ],
        "torch": [],
    }
    left_out = {"torch.compile": "torch.compile needs a C++ compiler (g++), and there is none"}
    return Results(
        "abc1234", False, "2026-01-02T03:04:05+00:00", machine, versions, engines, left_out,
        rounds=rounds, limits=limits, growth=points, seconds=60.0,
    )  # fmt: skip


def in_turns() -> Results:
    """A round of one engine, with a turn that it missed."""
    found = {"relu": {"skimp": {"seconds": 0.025, "slices": [0.02, None, 0.03]}}}
    return replace(example(), rounds=[found], limits=[{}], growth={}, left_out={})


def test_ratios_without_turns_are_medians_of_rounds() -> None:
    relu, add = verdict.rows(example())
    assert relu.seconds == {"skimp": 0.03, "torch": 0.1, "torch+thp": 0.04}
    assert relu.of_default == pytest.approx(0.3)
    assert relu.of_best == pytest.approx(0.5)  # of 0.5, 0.75, and 0.4 in the round of a slow thp
    assert relu.of_memory == pytest.approx(382 / 381.5)
    assert relu.missed == ["default"]  # memory is above by less than a page
    assert add.of_default is None
    assert add.errors == {"torch": "RuntimeError: no"}
    assert add.missed == ["default", "best"]  # no figure is no success


def test_ratios_are_medians_of_turns() -> None:
    moods = (1.0, 1.7, 1.7, 1.0, 1.0)  # of the machine, by turn
    mine = {"seconds": 0.2, "slices": [0.2 * m for m in moods]}
    other = {"seconds": 0.1, "slices": [*(0.1 * m for m in moods[:-1]), 0.4]}  # disturbed once
    some = {"seconds": 0.3, "slices": [None, None, *(0.1 * m for m in moods[2:])]}
    assert verdict.ratio_within(mine, other) == pytest.approx(2)
    assert verdict.ratio_within(mine, some) == pytest.approx(2)  # of the turns that it had
    assert verdict.ratio_within(mine, {"error": "no"}) is None
    rounds = [{"skimp": mine, "torch": {"seconds": 1.0, "slices": [s] * 5}} for s in (1, 2, 0.1)]
    assert verdict.ratio(rounds, "skimp", "torch") == pytest.approx(0.2)


def test_the_better_of_two_is_chosen_by_the_whole_run() -> None:
    assert verdict.of_better([0.9, 1.1]) == 1.1
    assert verdict.of_better([0.9, None]) is None
    equal = [{"seconds": 1.0, "slices": s} for s in ([1.0, 2.0, 1.0, 1.0], [2.0, 1.0, 1.0, 1.0])]
    mine = {"seconds": 1.0, "slices": [1.0] * 4}
    found = [{"skimp": mine, "torch": equal[0], "torch+thp": equal[1]}]
    ratios = [verdict.ratio(found, "skimp", engine) for engine in verdict.BEST]
    assert verdict.of_better(ratios) == 1.0


@pytest.mark.parametrize(
    ("resident", "ledger", "expected"),
    [
        (382.0, 382.0, True),
        (400.0, 381.0, True),
        (403.0, 381.0, False),
        (0.0, 382.0, False),
        (63.0, 10.0, None),
        (None, 382.0, None),
        (382.0, None, None),
    ],
)
def test_ledger_and_system_agree(
    resident: float | None, ledger: float | None, expected: bool | None
) -> None:
    assert verdict.agree(resident, ledger) is expected


@pytest.mark.parametrize(
    ("ratio", "wanted", "expected"),
    [(0.254, 0.25, False), (0.256, 0.25, True), (9.0, None, False), (None, 1.0, True)],
)
def test_goals_are_compared_as_shown(
    ratio: float | None, wanted: float | None, expected: bool
) -> None:
    assert verdict.exceeds(ratio, wanted) is expected


@pytest.mark.parametrize(("extra", "missed"), [(1.9, []), (2.1, ["memory"])])
def test_in_place_work_takes_no_memory(extra: float, missed: list[str]) -> None:
    figures = {"skimp": extra, "torch": 0.0}
    row = verdict.Row("relu_", GOALS["relu_"], {}, figures, extra, 0.5, 0.5, None, None, {})
    assert row.missed == missed


def test_shares_of_the_bandwidth() -> None:
    (relu,) = verdict.shares(example())
    assert relu.against == "copy"
    assert relu.shares["skimp"] == pytest.approx(8e8 / 0.03 / 4e10)
    assert not relu.met


# -- pages ----------------------------------------------------------------------------------------


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    path = save(example(), tmp_path)
    assert path.name == "2026-01-02-abc1234.json"
    assert load(path) == example()
    assert newest(tmp_path) == path
    save(replace(example(), commit="later", started="2026-01-03T00:00:00+00:00"), tmp_path)
    assert newest(tmp_path).name == "2026-01-03-later.json"
    assert json.loads(path.read_text())["rounds"][0]["relu"]["skimp"]["seconds"] == 0.02


def test_slices_take_a_line(tmp_path: Path) -> None:
    results = in_turns()
    assert results.turns
    assert not example().turns
    path = save(results, tmp_path)
    assert '"slices": [0.02, null, 0.03]' in path.read_text()
    assert load(path) == results


def test_kept_results_are_readable() -> None:
    files = list(FOLDER.glob("*.json"))
    assert files
    for file in files:
        assert all(row.seconds for row in verdict.rows(load(file)))


def test_pages_show_the_figures(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n")
    page.write(example(), tmp_path, Path("2026-01-02-abc1234.json"))
    text = (tmp_path / "docs" / "performance.md").read_text()
    assert (
        "| `relu(x)` | 30 ms | 100 ms | 40 ms | 0.30 (0.25) | 0.50 (0.8) | **no**: default |"
        in text
    )
    assert "| `relu(x)` | 382 | 382 | 382 | 1.00 (1) | 382 | yes |" in text
    assert "| `a + b` | 1 µs | failed | 2 µs |" in text
    assert "- `a + b`, torch: `RuntimeError: no`" in text
    assert "**torch.compile** was not measured: torch.compile needs a C++ compiler" in text
    assert "0 of 2 workloads meet their goals" in text
    changed = readme.read_text()
    assert changed.startswith("before\n\n<!-- bench -->\nAgainst PyTorch 2.13.0 on A processor")
    assert changed.endswith("<!-- /bench -->\n\nafter\n")
    assert "old" not in changed
    pictures = {p.name for p in (tmp_path / "docs" / "pictures").iterdir()}
    names = ("overview", "ratios", "memory", "size", "nodes", "threads")
    names += ("budget",) * bool(budget_table.kept())
    assert pictures == {f"{name}-{theme}.svg" for name in names for theme in ("light", "dark")}
    for name in names:
        assert f'srcset="pictures/{name}-dark.svg"' in text or name == "overview"


def test_the_page_tells_how_these_results_came_about(tmp_path: Path) -> None:
    for results, words in ((in_turns(), "The engines take turns."), (example(), "older than")):
        text = page.page(results, verdict.rows(results), tmp_path / "pictures", "x.json")
        assert words in text.partition("## How it is measured")[2]


def test_the_same_figures_give_the_same_chart(tmp_path: Path) -> None:
    points = charts.of_curve(example().growth, "size")
    for folder in (tmp_path / "a", tmp_path / "b"):
        charts.write(folder, "size", lambda colours: charts.by_size(points, colours), wanted=True)
    a, b = ((tmp_path / folder / "size-dark.svg").read_bytes() for folder in "ab")
    assert a == b
    assert a != (tmp_path / "a" / "size-light.svg").read_bytes()


def test_charts_without_figures_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"{page.BEGIN}{page.END}")
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    old = tmp_path / "docs" / "pictures" / "size-light.svg"
    old.write_text("of another run")
    page.write(replace(example(), growth={}, rounds=[], limits=[]), tmp_path, Path("x.json"))
    assert not old.exists()
    assert "How cost grows" not in (tmp_path / "docs" / "performance.md").read_text()


def test_the_page_has_what_a_budget_costs(tmp_path: Path) -> None:
    rows = [
        budget.Row(
            "gpt", spill, share, 100, slowdown, slowdown, 1.5, 1.03, same=share < 1, resident=20.0
        )._asdict()
        for spill in (False, True)
        for share, slowdown in ((1.0, 1.01), (0.5, None if spill else 2.0))
    ]
    found = {"commit": "abc1234", "load": 0.5, "rows": rows}
    text = "\n".join(budget_table.part(found, "CHART"))
    assert "| gpt | off | 1.01 (1.01) **other losses** | 2.00 (2.00) | 1.50 | **+20** |" in text
    assert "| gpt | on | 1.01 (1.01) **other losses** | below the floor | 1.50 | **+20** |" in text
    assert "2 of 4 are within the goal, 1 are below" in text
    assert "were up to 3.0% apart" in text
    assert "CHART" in text
    assert budget_table.part({}, "CHART") == []
    charts.draw_budget(rows, tmp_path)
    assert (tmp_path / "budget-dark.svg").exists()
    charts.draw_budget([], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_budget_s_steps_are_compared_with_the_same_ones_without_it() -> None:
    free = [(1.0, 2.0)] * budget.FIRST + [(1.0, 1.0), (4.0, 2.0), (2.0, 1.0)]  # trees of any size
    times = [(9.0, 9.0)] * budget.FIRST + [(1.5, 1.5), (6.0, 2.0), (90.0, 1.0)]  # one was disturbed
    assert budget.ratio(times, free, 0) == 1.5
    assert budget.ratio(times, free, 1) == 1.0


def test_a_program_takes_its_turns_within_a_budget() -> None:
    free = budget.sized("unet")
    other = budget.Worker("unet")
    trials = [budget.Trial("unet", share, spill=False, free=free) for share in (2.0, 0.01)]
    for _ in range(budget.FIRST + 1):
        other.step()
        for trial in trials:
            trial.step(other)
    row, refused = [trial.row(other, 1.0) for trial in trials]
    other.end()
    assert refused.slowdown is None
    assert row.same
    assert row.held <= row.budget
    assert row.slowdown is not None
    assert row.resident is not None
    assert 0.2 < row.slowdown < 50


def test_a_table_needs_its_markers() -> None:
    with pytest.raises(ValueError, match="no table to replace"):
        page.replaced("no markers", "table")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5 s"),
        (0.9999, "1 s"),
        (0.1234, "123 ms"),
        (1.234e-6, "1.23 µs"),
        (4.2e-7, "420 ns"),
    ],
)
def test_times_have_three_digits(value: float, text: str) -> None:
    assert page.seconds(value) == text
