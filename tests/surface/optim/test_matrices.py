"""Muon and Adafactor, which look at a matrix as a whole, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from tests.support import samples

MUONS: list[dict[str, Any]] = [
    {},
    {"lr": 0.1, "nesterov": False, "weight_decay": 0.0},
    {"lr": 0.05, "adjust_lr_fn": "match_rms_adamw", "momentum": 0.5},
    {"lr": 0.05, "adjust_lr_fn": "original", "ns_steps": 3},
]
ADAFACTORS: list[dict[str, Any]] = [
    {},
    {"lr": 0.1, "weight_decay": 0.1, "maximize": True},
    {"lr": 0.3, "eps": (1e-6, 1e-2), "d": 2.0, "beta2_decay": -0.5},
]


def steps(torch: Any, cls: str, shape: Any, words: Any, dtype: str = "float32") -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    p = torch.tensor(rng.standard_normal(shape), dtype=getattr(torch, dtype), requires_grad=True)
    optimizer = getattr(torch.optim, cls)([p], **words)
    for _ in range(6):
        p.grad = torch.tensor(rng.standard_normal(shape), dtype=p.dtype)
        optimizer.step()
    return p, optimizer


def same(cls: str, shape: Any, words: Any, rtol: float, dtype: str = "float32") -> None:
    (p, ours), (q, theirs) = (steps(t, cls, shape, words, dtype) for t in (skimp, oracle))
    samples.same(p, q, rtol)
    mine, wanted = ours.state_dict(), theirs.state_dict()
    assert mine["param_groups"] == wanted["param_groups"]
    assert repr(ours) == repr(theirs)
    samples.same(mine["state"], wanted["state"], 1e-2, strides=False)


@pytest.mark.parametrize("words", MUONS)
@pytest.mark.parametrize("shape", [(4, 6), (7, 3)])
def test_muon(shape: Any, words: Any) -> None:
    same("Muon", shape, words, 0.01)  # its products are in bfloat16


@pytest.mark.parametrize("words", ADAFACTORS)
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 5), (9,), ()])
def test_adafactor(shape: Any, words: Any) -> None:
    same("Adafactor", shape, words, 2e-6)
    same("Adafactor", shape, words, 1e-12, "float64")


def test_adafactor_in_half_precision() -> None:
    same("Adafactor", (4, 6), {"lr": 0.1}, 0.02, "bfloat16")


def test_adafactor_keeps_a_row_and_a_column() -> None:
    p = skimp.randn(200, 300).requires_grad_()
    p.grad = skimp.randn(200, 300)
    before = skimp.cuda.memory_allocated()
    optimizer = skimp.optim.Adafactor([p])
    optimizer.step()
    assert skimp.cuda.memory_allocated() - before == 4 * (200 + 300 + 1)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        ("Muon", {"lr": -1.0}),
        ("Muon", {"momentum": -1.0}),
        ("Muon", {"weight_decay": -1.0}),
        ("Muon", {"adjust_lr_fn": "other"}),
        ("Adafactor", {"lr": -1.0}),
        ("Adafactor", {"beta2_decay": 0.1}),
        ("Adafactor", {"eps": (-1.0, 0.1)}),
        ("Adafactor", {"eps": (None, -0.1)}),
        ("Adafactor", {"d": 0.5}),
        ("Adafactor", {"weight_decay": -0.1}),
    ],
)
def test_refused_options(cls: str, words: Any) -> None:
    with pytest.raises(ValueError, match=r".") as want:
        getattr(oracle.optim, cls)([oracle.zeros(2, 2)], **words)
    with pytest.raises(ValueError, match=r".") as got:
        getattr(skimp.optim, cls)([skimp.zeros(2, 2)], **words)
    assert str(got.value) == str(want.value)


def test_muon_is_for_matrices() -> None:
    with pytest.raises(ValueError, match="only supports 2D parameters"):
        skimp.optim.Muon([skimp.zeros(3)])
    p = skimp.zeros(2, 2).requires_grad_()
    p.grad = skimp.ones(2, 2)
    with pytest.raises(ValueError, match="less than 100"):
        skimp.optim.Muon([p], ns_steps=100).step()


def test_step_counts_follow_the_default_dtype() -> None:
    before = skimp.get_default_dtype()
    skimp.set_default_dtype(skimp.float64)
    try:
        p = skimp.zeros(3).requires_grad_()
        p.grad = skimp.ones(3)
        optimizer = skimp.optim.Adam([p])
        optimizer.step()
        assert optimizer.state[p]["step"].dtype is skimp.float64
    finally:
        skimp.set_default_dtype(before)
