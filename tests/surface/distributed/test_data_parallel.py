"""DistributedDataParallel on two ranks gives the numbers of PyTorch's on gloo, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support import ranks
from tests.support.shared import made_once

PROGRAM = Path(__file__).with_name("training.py")
WAYS = """
plain|small buckets|one bucket|buffers|own buffers|unused|unused by all|static|all-reduce hook
fp16 hook
wrapped|own hook|powersgd|unfinished|no parameters|device ids|join
join, divided|joined parameters|sampler|all_reduce|broadcast|reduce|all_gather|gather|scatter
all_to_all|all_to_all_single|older|functional sum|functional gather|functional columns
functional scatter|functional exchange|functional wait|functional, several
""".strip().replace("\n", "|")  # fmt: skip


@made_once
def numbers(library: str) -> list[dict[str, Any]]:
    """What each rank wrote."""
    with TemporaryDirectory() as folder:
        target = str(Path(folder) / "found")
        if library == "gloo":
            ranks.run_theirs(PROGRAM, target, n=2)
        else:
            ranks.run_each(ranks.ours(PROGRAM, target), 2)
        return [json.loads(Path(f"{target}.{r}").read_text()) for r in range(2)]


@pytest.mark.parametrize("way", WAYS.split("|"))
def test_two_ranks_get_gloos_numbers(way: str) -> None:
    for expected, found in zip(numbers("gloo"), numbers("skimp"), strict=True):
        assert found[way] == expected[way]


def test_every_way_is_compared() -> None:
    assert set(numbers("gloo")[0]) == set(WAYS.split("|"))
