"""What ranks hold once: losses are those of one process, bytes those of the formula."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.ranks import launched
from tests.support.running import default_mode
from tests.support.shared import made_once

HERE = Path(__file__).parent


@made_once
def trained() -> dict[str, Any]:
    """What rank 0 of two wrote, and what the last of three read of the checkpoint."""
    with TemporaryDirectory() as folder:
        for n, what in ((2, "all"), (3, "load")):
            words = f"{folder}/{what}", f"{folder}/checkpoint", what
            done = launched("launch", "-n", str(n), str(HERE / "sharded.py"), *words)
            assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(Path(f"{folder}/all.0").read_text())
        found["of three"] = json.loads(Path(f"{folder}/load.2").read_text())
        return found


@pytest.mark.parametrize("way", ["fully_shard", "wrapper", "zero", "copies"])
def test_losses_are_those_of_one_process(way: str) -> None:
    """Of `copies`, too, whose parts are whole; PyTorch's differ from rank to rank (a row)."""
    assert trained()[way] == pytest.approx(trained()["alone"], rel=1e-6)


def test_the_strategy_is_told() -> None:
    assert trained()["strategy"] == "FULL_SHARD"


def test_ranks_with_other_numbers_of_inputs_step_as_one_optimizer() -> None:
    assert trained()["joined"] == trained()["joined alone"]


def test_gradients_add_up_before_they_are_averaged() -> None:
    assert trained()["accumulated"] == pytest.approx(trained()["alone accumulated"], rel=1e-6)


def test_mixed_precision_is_near() -> None:
    assert trained()["mixed"] == pytest.approx(trained()["alone"], rel=2e-2)
    assert trained()["mixed"] != pytest.approx(trained()["alone"], rel=1e-6)


def test_blocks_that_are_computed_again_give_the_same_losses() -> None:
    assert trained()["checkpointed"] == pytest.approx(trained()["wrapper"], rel=1e-6)


def test_an_infinity_on_one_rank_makes_all_skip_the_step() -> None:
    assert trained()["scaled"] == [0, 32768.0]


def test_states_are_whole_or_parts() -> None:
    found = trained()
    assert found["state"] == found["alone state"]
    assert found["part"] == [[128, 64], [256, 64], "(Shard(dim=0),)"]
    assert found["rows"] == 128
    assert found["loaded"] == found["wrapper state"]
    assert found["summoned"] == [256, 64]
    assert found["zero whole"] == len(found["state"])


def test_norms_are_of_whole_gradients_and_parts_of_nothing_become_parts() -> None:
    ours, alone, clipped = trained()["norms"]
    assert ours == pytest.approx(alone, rel=1e-5)
    assert clipped == pytest.approx(0.5, rel=1e-3)
    assert trained()["from meta"] == [3, 64]


def test_a_mesh_has_a_group_per_line() -> None:
    assert trained()["mesh"] == [[1, 2], 0, 2, [0, 0], 2.0]


def test_another_number_of_ranks_reads_the_checkpoint() -> None:
    assert trained()["of three"]["state"] == trained()["state"]
    assert trained()["of three"]["step"] == 4
    assert trained()["of three"]["moments"] == pytest.approx(trained()["moments"], rel=1e-3)
    assert trained()["moments"] != 0


@default_mode  # with everything deferred it is lower
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_peak_of_each_rank_is_the_formulas(n: int, tmp_path: Path) -> None:
    layers, width = 8, 512
    target = tmp_path / "found"
    words = ["-n", str(n), "--limit", "40MiB", str(HERE / "peaks.py"), str(target)]
    if n > 2:  # parameters and momentum alone are 16 MiB
        words[3] = "10MiB"
    done = launched("launch", *words, str(layers), str(width))
    assert done.returncode == 0, done.stderr
    layer = width * width * 4
    # parts of parameters, momentum and the gradients but the last two layers'; two layers gathered,
    # one gradient computed and one on its way
    peak = (2 * layers + layers - 2) * layer / n + 4 * layer
    for r in range(n):
        found = json.loads(Path(f"{target}.{r}").read_text())
        assert found["peak"] == pytest.approx(peak, rel=0.02)
        assert found["after"] == pytest.approx(3 * layers * layer / n, rel=0.02)
        assert found["losses"][0] > found["losses"][-1]


def test_one_rank_cannot_hold_what_four_can(tmp_path: Path) -> None:
    words = "--limit", "10MiB", str(HERE / "peaks.py"), str(tmp_path / "found"), "8", "512"
    done = launched("launch", "-n", "1", *words)
    assert done.returncode == 1
    assert "OutOfMemoryError" in done.stderr


def test_half_precision_sums_of_many_are_rounded_once(tmp_path: Path) -> None:
    done = launched("launch", "-n", "3", str(HERE / "halves.py"), str(tmp_path / "found"))
    assert done.returncode == 0, done.stderr
    for r in range(3):
        for whole, part, large in json.loads((tmp_path / f"found.{r}").read_text()).values():
            assert whole == part == large + 2
