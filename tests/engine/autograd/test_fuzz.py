"""Random programs of views, in-place ops and gradients: the oracle's values, gradients, versions
and nodes, or both refuse, for the same reason.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support.autograd_twin import compare, program

COUNT = int(os.environ.get("SKIMP_FUZZ", "150"))  # programs of each kind; 10,000 take five minutes
PARTS = 3
REAL, COMPLEX = ("float64", "float32"), ("float64", "complex128")


def differing(seeds: range, **how: Any) -> dict[int, str]:
    """What is found, by seed; a third of the programs have complex numbers."""
    wrong = {}
    for seed in seeds:
        steps = program(seed, dtypes=REAL if seed % 3 else COMPLEX, **how)
        found = compare(skimp, oracle, steps)
        if found is not None:
            wrong[seed] = found
    return wrong


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_programs(part: int) -> None:
    assert not differing(range(part, COUNT, PARTS))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_programs_that_change_layouts(part: int) -> None:
    assert not differing(range(part, COUNT, PARTS), layouts=0.25)


@pytest.mark.filterwarnings("ignore")
def test_programs_with_everything_deferred() -> None:
    with skimp.config.using(defer="always"):
        assert not differing(range(COUNT, COUNT + COUNT // 4))
        assert not differing(range(COUNT, COUNT + COUNT // 4), layouts=0.25)
