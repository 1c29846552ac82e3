"""The benchmark's programs and small ops: the same on skimp and PyTorch, and their tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from bench import page, run, tables
from bench.catalogue import ALL, COMPARED, PARTS, looped
from bench.engines import ENGINES
from bench.measure import ALIKE, Measured, first_losses, load as load_engine
from bench.micro import BACKWARD, ROWS, inputs, small_op
from bench.overhead import BY_NUMPY, HELP, PLAIN_GOAL, RECORDED_GOAL, inputs as arrays_of
from bench.overhead_table import over, overhead
from bench.programs import PROGRAMS, TITLES
from bench.results import Results, load, newest
from skimp.config import using


def test_every_program_has_a_title() -> None:
    assert list(PROGRAMS) == list(TITLES)
    assert sum(map(len, PARTS.values())) == len(ALL)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine are slow."""
    before = [T.get_num_threads() for T in (torch, skimp)]
    for T in (torch, skimp):
        T.set_num_threads(1)
    yield
    for T, threads in zip((torch, skimp), before, strict=True):
        T.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_programs_have_the_losses_that_they_have_on_torch(name: str) -> None:
    expected, mine = (first_losses(PROGRAMS[name](T), 3) for T in (torch, skimp))
    np.testing.assert_allclose(mine, expected, rtol=tables.EQUAL)


def values(result: Any) -> list[Any]:
    """The numbers of a result, of each of several."""
    if isinstance(result, (tuple, list)):
        return [value for part in result for value in values(part)]
    if hasattr(result, "detach"):
        return [np.asarray(result.detach())]
    return [] if result is None or isinstance(result, str) else [np.asarray(result)]


@pytest.mark.parametrize("name", list(ROWS))
def test_small_ops_compute_what_they_compute_on_torch(name: str) -> None:
    results = []
    for T in (torch, skimp):
        call = small_op(T, name)
        T.manual_seed(1)
        results.append(values(call()))
    for expected, mine in zip(*results, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", list(BY_NUMPY))
def test_numpys_own_calls_compute_what_small_ops_do(name: str) -> None:
    tensors = inputs(skimp)
    arrays = {n: tensors[n].detach().numpy().copy() for n in arrays_of() if n in tensors}
    mine, numpys = eval(ROWS[name], tensors), eval(BY_NUMPY[name], {**HELP, **arrays})
    written = "e" if name == "zero_" else "d"  # by rows that return nothing
    expected = values(arrays[written] if numpys is None else numpys)
    found = values(tensors[written] if mine is None else mine)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_overheads_are_differences_of_neighbours_in_time() -> None:
    results = run.begin(["skimp", "numpy"])
    slices = {"skimp": [3e-6, None, 9e-6, 5e-6], "numpy": [1e-6, 1e-6, 2e-6, 1.5e-6]}
    results.rounds = [{"micro/cat": {e: {"slices": s} for e, s in slices.items()}}]
    assert overhead(results).splitlines()[2:] == ["| general | 1 | 3.5 µs | 3.5 µs |  |  | `cat` |"]
    far = over({"a": 2e-6, "b": 9e-7}, PLAIN_GOAL, {"c": 1.4e-6, "d": 9e-6}, RECORDED_GOAL)
    assert far == "`d`, `a`"


def test_rows_that_go_back_do() -> None:
    for name in BACKWARD:
        assert "backward" in ROWS[f"{name}, and back"]


def test_looped_calls_are_the_short_ones() -> None:
    assert looped("micro/add")
    assert looped("us_add")
    assert looped("size/add/10000")
    assert not looped("size/add/100000")
    assert not looped("program/gpt_small")
    assert not looped("relu")


def test_programs_are_measured_with_their_losses_and_processors() -> None:
    answers = []
    for engine in COMPARED:
        measured = Measured(ENGINES[engine], "program/char_mlp", 1)
        step, steps = measured.call, [0]
        measured.call = lambda step=step, steps=steps: (steps.append(1), step())[1]
        measured.warm()
        assert sum(steps) == ALIKE  # those of which the memory is told, whatever they take
        measured.turn()
        answers.append(measured.end())
        assert measured.alike
        assert measured.alike.items() <= answers[-1].items()
    mine, theirs = answers
    assert mine["losses"] == pytest.approx(theirs["losses"], rel=tables.EQUAL)
    assert mine["cpu"] > 0.0


def test_a_number_of_threads_reaches_the_engine() -> None:
    with using():  # puts the number back
        load_engine(ENGINES["skimp"], threads=1)
        assert skimp.get_num_threads() == 1


def test_another_process_is_busy_for_as_long_as_it_is_wanted() -> None:
    with run.busy() as other:
        assert other.poll() is None
    assert other.poll() is not None


def found(skimp_seconds: float, torch_seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "skimp": {"seconds": skimp_seconds, "extra_mib": 2.0, "losses": [1.0, 2.0], **more},
        "torch": {"seconds": torch_seconds, "extra_mib": 8.0, "losses": [1.0, 2.001]},
    }


def test_the_tables_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["program/char_mlp", "micro/add", "micro/add, recorded", "size/sum/10"]
    asked: list[Any] = []
    settings = "SKIMP_ONEDNN", "SKIMP_COMPILED"
    conditions = ["threads=1", "busy", "uncompiled", "alone"]

    def one_round(results: Results, names: list[str], number: int, threads: Any = None) -> Any:
        asked.append((names, threads, *map(os.environ.get, settings)))
        return {name: found(1.0, 2.0) for name in names}

    monkeypatch.setattr(run, "one_round", one_round)
    monkeypatch.setattr(run, "bandwidths", lambda shrink: {})
    results = run.begin(list(COMPARED))
    given = tuple(map(os.environ.get, settings))
    assert run.run(results, names, 1, False, tmp_path, conditions=conditions)
    one = names[:1]
    assert asked[:3] == [(names, None, *given), (one, 1, *given), (one, None, *given)]
    assert asked[3:] == [(one, None, given[0], "never"), (one, None, "never", "never")]
    assert tuple(map(os.environ.get, settings)) == given
    results.imports = {"skimp": {"seconds": 0.25, "mib": 40.0}}
    kept = load(newest(tmp_path))
    assert set(kept.conditions["busy"][0]) == {"program/char_mlp"}
    told = "\n".join(tables.parts(results))
    assert "| MLP over letters, batch norm by hand |" in told
    assert "| one thread | a busy core | loops not compiled | NumPy alone |" in told
    assert "(`skimp compile`): without those 0.50, on NumPy alone 0.50." in told
    assert "| `a + b` |" in told
    assert "| `ga + gb`, recorded |" in told
    assert "| `import skimp` | 250 ms | 40 |" in told
    assert "While another process keeps a core busy" in told


def made_up(**programs: Any) -> Results:
    rounds = [{f"program/{name}": figures for name, figures in programs.items()}]
    machine = {"processor": "A", "cores": 2}
    return Results("abc", False, "2026", machine, {}, list(COMPARED), {}, rounds=rounds)


def test_means_and_differences() -> None:
    results = made_up(vae=found(2.0, 1.0), gcn=found(1.0, 2.0))
    told = tables.programs(results)
    assert "| VAE | 2 s | 1 s | **2.00** |" in told
    assert "**5e-04**" in told  # the losses are not equal
    assert "| **geometric mean** |  |  | 1.00 (0.8) |" in told
    assert "share 0.25 (0.4)" in told
    assert "1 are at or under PyTorch's time, 1 within 1.2" in tables.programs_in_words(results)


def test_failures_are_shown() -> None:
    figures = found(2.0, 1.0)
    figures["skimp"] = {"error": "ValueError: no"}
    told = tables.programs(made_up(vae=figures))
    assert "| VAE | skimp: ValueError: no | 1 s | **failed** |" in told


def test_nothing_measured_is_nothing_told() -> None:
    assert tables.parts(made_up()) == []


def test_imports_are_measured_in_fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "IMPORTS", 1)
    told = run.imports()
    assert set(told) == set(COMPARED)
    assert all(figures["seconds"] > 0.01 for figures in told.values())


def test_the_readme_is_led_by_programs(tmp_path: Path) -> None:
    """The pages of a run with programs, small ops, sizes, conditions and imports."""
    (tmp_path / "README.md").write_text(f"{page.BEGIN}\n{page.END}\n")
    results = made_up(vae=found(0.004, 0.005, cpu=1.5), gcn=found(0.001, 0.002, cpu=1.0))
    results.rounds[0] |= {
        "micro/add": found(1e-6, 2e-6),
        "size/add/100000": found(3e-5, 1e-5),
        "relu": found(0.02, 0.1),
    }
    results.conditions = dict.fromkeys(tables.CONDITIONS, results.rounds)
    results.imports = {"skimp": {"seconds": 0.3, "mib": 44.0}}
    results.machine |= {"memory_gib": 8.0, "system": "Linux", "huge_pages": "never", "load": 0.0}
    results.versions = {"torch": "2.13.0"}
    results.limits = [{}]
    page.write(results, tmp_path, Path("x.json"))
    readme = (tmp_path / "README.md").read_text()
    programs, large = readme.index("2 programs take 0.63 of"), readme.index("| `relu(x)` |")
    assert programs < readme.index("| VAE | 4 ms | 5 ms | 0.80 | 2 | 8 |") < large
    assert programs < readme.index("1 small ops: geometric mean 0.50") < large
    text = (tmp_path / "docs" / "performance.md").read_text()
    titles = ["## Programs", "## Small ops", "## Sizes", "## Import", "## Large tensors"]
    assert sorted(titles, key=text.index) == titles
    assert "| `add` |  |  |  |  |  | **3.00** |" in text
    assert "skimp 1.00, torch 1.00" in text  # what a busy core costs
