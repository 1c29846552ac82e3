"""Trainings in the manner of PyTorch's tutorials, which start their ranks, have gloo's losses."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support import ranks
from tests.support.shared import made_once

PROGRAM = Path(__file__).with_name("tutorials.py")
WAYS = [
    "averaged_by_hand", "ring", "data_parallel", "hooked", "uneven", "sharded_optimizer",
    "fully_sharded", "half", "wrapped", "saved_and_loaded", "hybrid",
]  # fmt: skip


SIZES = [2, 4]


@made_once
def losses(library: str) -> dict[str, list[dict[str, Any]]]:
    """By the number of ranks: what each wrote."""
    with TemporaryDirectory() as folder:
        words = folder, *map(str, SIZES)
        if library == "gloo":
            ranks.run_theirs(PROGRAM, "fork", *words, n=1)
        else:
            done = ranks.launched("run", "--quiet", str(PROGRAM), "spawn", *words)
            assert done.returncode == 0, done.stderr
        return {
            str(n): [json.loads(Path(folder, str(n), f"found.{r}").read_text()) for r in range(n)]
            for n in SIZES
        }


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_losses_are_gloos(way: str, n: int) -> None:
    for expected, found in zip(losses("gloo")[str(n)], losses("skimp")[str(n)], strict=True):
        assert set(expected) == set(WAYS)
        # gloo rounds each sum of four float16 terms; here they are added in float32
        near = 1e-5 if (way, n) == ("hooked", 4) else 1e-6
        assert found[way] == pytest.approx(expected[way], rel=near, abs=1e-9)
