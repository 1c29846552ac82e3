"""Random programs of views, in-place ops and gradients: the oracle's values and gradients, or both
refuse.
"""

from __future__ import annotations

import os

import pytest
import torch as oracle

import skimp
from autograd_twin import compare, program

COUNT = int(os.environ.get("SKIMP_FUZZ", "150"))  # programs; 10,000 take three minutes
PARTS = 3
DTYPES = [("float64", "float32"), ("float64", "complex128")]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_programs(part: int) -> None:
    wrong = {}
    for seed in range(part, COUNT, PARTS):
        found = compare(skimp, oracle, program(seed, dtypes=DTYPES[seed % 3 == 0]))
        if found is not None:
            wrong[seed] = found
    assert not wrong


@pytest.mark.filterwarnings("ignore")
def test_programs_with_everything_deferred() -> None:
    wrong = {}
    with skimp.config.using(defer="always"):
        for seed in range(COUNT, COUNT + COUNT // 4):
            found = compare(skimp, oracle, program(seed))
            if found is not None:
                wrong[seed] = found
    assert not wrong
