"""What PyTorch tells of older names and calls: the same words, once in a process."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import skimp
from skimp._engine.memory import call_site

CALLS = """
t.cholesky(t.eye(2))
t.eye(2).cholesky()
t.qr(t.eye(2))
t.lu(t.eye(2))
t.lu_solve(t.eye(2), *t.linalg.lu_factor(t.eye(2)))
t.triangular_solve(t.eye(2), t.eye(2))
t.ones(2).add_(2, t.ones(2))
t.ones(2).sub(2, t.ones(2))
t.stft(t.ones(64), 16, return_complex=True)
t.set_default_tensor_type(t.FloatTensor)
t.nn.Hardtanh(min_value=0.0)
t.distributions.Normal(0.0, 1.0).sample_n(2)
""".strip().splitlines()
ALWAYS = ("Hardtanh", "sample_n")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    before, was = set(call_site.told), torch.is_warn_always_enabled()
    call_site.told.clear()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(was)
    call_site.told.update(before)


def told(lib: Any, call: str, times: int = 1) -> list[tuple[type[Warning], str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            eval(call, {"t": lib})
    assert lib is torch or {w.filename for w in caught} <= {"<string>"}
    return [(w.category, re.sub(r" \(Triggered.*", "", str(w.message))) for w in caught]


@pytest.mark.parametrize("call", CALLS)
def test_words(call: str) -> None:
    assert told(skimp, call) == told(torch, call)
    always = any(name in call for name in ALWAYS)
    assert len(told(skimp, call, 2)) == (2 if always else 0)
