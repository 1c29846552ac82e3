"""Numbers that a type can't hold, given to ops that write them: refused where PyTorch refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import skimp
from tests.support.samples import outcome

VALUES = [300, -1, -256, 2**40, 2**63, 2**70, 1.5, 1e39, 70000.0, math.nan, math.inf, 1j, 1 + 0j,
          True, -300, 0]  # fmt: skip
DTYPES = [
    "uint8",
    "int8",
    "int64",
    "bool",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
]
WRITES = {
    "full": lambda t, d, v: t.full((2,), v, dtype=d),
    "full_like": lambda t, d, v: t.full_like(t.ones(2, dtype=d), v),
    "new_full": lambda t, d, v: t.ones(2, dtype=d).new_full((2,), v),
    "fill_": lambda t, d, v: t.ones(2, dtype=d).fill_(v),
    "fill": lambda t, d, v: t.fill(t.ones(2, dtype=d), v),
    "fill_diagonal_": lambda t, d, v: t.ones(2, 2, dtype=d).fill_diagonal_(v),
    "scatter": lambda t, d, v: t.ones(2, dtype=d).scatter(0, t.tensor([0]), v),
    "index_fill": lambda t, d, v: t.ones(2, dtype=d).index_fill(0, t.tensor([0]), v),
    "masked_fill": lambda t, d, v: t.ones(2, dtype=d).masked_fill(t.tensor([True, False]), v),
}

# Which of the values PyTorch refuses for a type, by their places.
REFUSED = {
    "uint8": [0, 2, 3, 4, 5, 7, 8, 9, 10, 11, 14],
    "int8": [0, 2, 3, 4, 5, 7, 8, 9, 10, 11, 14],
    "int64": [4, 5, 7, 9, 10, 11],
    "bool": [5],
    "float16": [3, 4, 5, 7, 8, 11],
    "bfloat16": [5, 7, 11],
    "float32": [5, 7, 11],
    "float64": [5, 11],
    "complex64": [5, 7],
}
COMPLEX = [11, 12]  # refused by index_fill whatever the imaginary part is


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITES)
def test_a_number_is_written_or_refused_as_in_pytorch(name: str, dtype: str) -> None:
    refused = set(REFUSED[dtype])
    if name == "index_fill" and dtype != "complex64":
        refused |= set(COMPLEX)

    def written(library: Any, value: Any) -> Any:
        made = WRITES[name](library, getattr(library, dtype), value)
        return made.to(library.complex128).reshape(-1).tolist()

    for place, value in enumerate(VALUES):
        ours, theirs = (outcome(written, t, value) for t in (skimp, torch))
        if place in refused:
            assert isinstance(theirs, Exception), value
            assert type(ours).__name__ == type(theirs).__name__, value
        else:
            assert repr(ours) == repr(theirs), value
