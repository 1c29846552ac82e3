"""Trainings in the manner of PyTorch's tutorials, which start their ranks, have gloo's losses."""

from __future__ import annotations

import json
import subprocess
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


@made_once
def losses(library: str, n: int) -> list[dict[str, Any]]:
    """What each rank wrote."""
    with TemporaryDirectory() as folder:
        target = f"{folder}/found"
        command = ranks.theirs if library == "gloo" else ranks.ours
        done = subprocess.run(
            command(PROGRAM, str(n), target),
            env=ranks.environment(),
            capture_output=True,
            text=True,
            timeout=2 * ranks.LIMIT,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(Path(f"{target}.{r}").read_text()) for r in range(n)]


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_losses_are_gloos(way: str, n: int) -> None:
    for expected, found in zip(losses("gloo", n), losses("skimp", n), strict=True):
        assert set(expected) == set(WAYS)
        # gloo rounds each sum of four float16 terms; here they are added in float32
        near = 1e-5 if (way, n) == ("hooked", 4) else 1e-6
        assert found[way] == pytest.approx(expected[way], rel=near, abs=1e-9)
