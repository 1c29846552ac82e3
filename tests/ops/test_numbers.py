"""Numbers that a type can't hold, given to ops that write them: refused where PyTorch refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import outcome

VALUES = [300, -1, -256, 2**40, 2**63, 2**70, 1.5, 1e39, 70000.0, math.nan, math.inf, 1j, 1 + 0j,
          True, -300, 0, -0.5, -1.0, 255.5, 127.5, -128.5]  # fmt: skip
DTYPES = [
    "uint8",
    "int8",
    "int32",
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
    "tensor": lambda t, d, v: t.tensor(v, dtype=d),
    "tensor of a list": lambda t, d, v: t.tensor([v], dtype=d),
    "tensor of two kinds": lambda t, d, v: t.tensor([[1, 1.0], [v, 0]], dtype=d),
    "clamp": lambda t, d, v: t.ones(2, dtype=d).clamp(v),
    "clamp_max": lambda t, d, v: t.ones(2, dtype=d).clamp(-1, v),
    "clamp_min alone": lambda t, d, v: t.clamp_min(t.ones(2, dtype=d), v),
    "clamp_max alone": lambda t, d, v: t.clamp_max(t.ones(2, dtype=d), v),
    "pad": lambda t, d, v: t.nn.functional.pad(t.ones(2, dtype=d), (1, 1), value=v),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITES)
def test_a_number_is_written_or_refused_as_in_pytorch(name: str, dtype: str) -> None:
    def written(library: Any, value: Any) -> Any:
        made = WRITES[name](library, getattr(library, dtype), value)
        return made.to(library.complex128).reshape(-1).tolist()

    for value in VALUES:
        if name == "pad" and dtype == "int64" and value == 2**63:
            continue  # the double 2**63 is taken there, and wraps
        ours, theirs = (outcome(written, t, value) for t in (skimp, torch))
        if "clamp" in name and dtype == "bool" and isinstance(theirs, NotImplementedError):
            continue  # skimp has it
        if isinstance(theirs, Exception):
            assert type(ours).__name__ == type(theirs).__name__, value
        else:
            assert repr(ours) == repr(theirs), value


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "float16", "float32"])
@pytest.mark.parametrize("name", ["fill_", "masked_fill", "clamp", "clamp_max", "clamp_min alone"])
def test_a_number_of_numpys_is_written_or_refused_as_in_pytorch(name: str, dtype: str) -> None:
    def written(library: Any, value: Any) -> Any:
        return WRITES[name](library, getattr(library, dtype), value).tolist()

    for value in (np.int64(300), np.int64(-1), np.uint8(200), np.int8(3), np.float32(1e30)):
        ours, theirs = (outcome(written, t, value) for t in (skimp, torch))
        if isinstance(theirs, Exception):
            assert type(ours).__name__ == type(theirs).__name__, value
        else:
            assert repr(ours) == repr(theirs), value


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "float16", "float32", "complex64"])
def test_what_does_not_fit_is_told_by_pytorchs_type(dtype: str) -> None:
    for write in ("full", "masked_fill", "tensor of a list"):
        for value in (300, -0.5, 1e39, -1e39, 2**40):
            ours, theirs = (
                outcome(WRITES[write], t, getattr(t, dtype), value) for t in (skimp, torch)
            )
            assert isinstance(ours, Exception) == isinstance(theirs, Exception)
            if isinstance(theirs, Exception):
                assert str(ours) == str(theirs)


def test_the_first_number_of_a_list_that_does_not_fit_is_told() -> None:
    def made(library: Any, values: list[Any], dtype: str) -> Any:
        return library.tensor(values, dtype=getattr(library, dtype))

    for values in ([2**70, 1.0], [1e30, 2**70], [2**70, 1e30], [300, 2**70]):
        ours, theirs = (outcome(made, t, values, "int8") for t in (skimp, torch))
        assert (type(ours), str(ours)) == (type(theirs), str(theirs))
    for values in ([1.5, 2], [-1], [2**64], [True, math.nan]):
        ours, theirs = (outcome(made, t, values, "uint64") for t in (skimp, torch))
        assert (type(ours), str(ours)) == (type(theirs), str(theirs))
