"""Spreads of very large and very small numbers, whose squares float32 does not hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import skimp

FUNCTIONS = {
    "var": lambda lib, x, **how: lib.var(x, **how),
    "std": lambda lib, x, **how: lib.std(x, **how),
    "var_mean": lambda lib, x, **how: lib.var_mean(x, **how)[0],
    "std_mean": lambda lib, x, **how: lib.std_mean(x, **how)[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_spreads_of_all_magnitudes(name: str, dtype: str) -> None:
    draw = np.random.default_rng(3)
    finite = 0
    for trial in range(60):
        shape = draw.choice([(2, 3), (2, 5), (40, 7), (3, 700), (70, 1100)])
        powers = draw.uniform(-44, 37, 3)
        data = draw.choice([-1, 0, 1, 2, 3], shape) * 10 ** draw.choice(powers, shape)
        theirs = torch.from_numpy(data).float().to(getattr(torch, dtype))
        ours = skimp.from_numpy(data).float().to(getattr(skimp, dtype))
        for how in ({"dim": 0}, {"dim": 1}, {"dim": (0, 1)}, {"dim": -1, "correction": 0}):
            expected = FUNCTIONS[name](torch, theirs, **how).double()
            found = torch.tensor(FUNCTIONS[name](skimp, ours, **how).double().tolist())
            finite += int(expected.isfinite().sum())
            known = torch.ones_like(expected).bool()
            if how["dim"] == (0, 1):  # then PyTorch adds in float32
                known = expected.isfinite()
            torch.testing.assert_close(
                found.double()[known],
                expected[known],
                rtol=2e-2 if dtype == "bfloat16" else 1e-5,
                atol=2e-45,
                equal_nan=True,
                msg=lambda text, trial=trial, how=how: f"{trial} {how} {text}",
            )
    assert finite > 1000
    assert math.isfinite(skimp.tensor([1e30, 0.0, 1.0]).std().item())


@pytest.mark.parametrize("name", ["std_mean", "var_mean"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_a_mean_beside_its_spread_is_finite_where_its_sum_is_not(name: str, dtype: str) -> None:
    def mean(lib: object) -> object:
        x = lib.full((2, 3), 3e38, dtype=getattr(lib, dtype))  # type: ignore[attr-defined]
        return getattr(lib, name)(x, 1)[1].tolist()

    assert mean(skimp) == mean(torch)
