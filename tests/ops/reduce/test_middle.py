"""Tensors a little larger than small ones: what one call makes of them is what blocks make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.dispatch import operands

F = skimp.nn.functional


def hidden() -> Any:
    return skimp.arange(130) % 3 == 0


CALLS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of what waits": lambda x: F.softmax(x * 30, 1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "masked_fill": lambda x: x.masked_fill(hidden(), -1.5),
    "dropout": lambda x: F.dropout(x, 0.3),
    "masked, softmax, dropout": lambda x: F.dropout(
        F.softmax((x * 0.5).masked_fill(hidden(), -float("inf")), -1), 0.1
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_middle_sizes(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def bits() -> list[bytes]:
        skimp.manual_seed(0)
        x = skimp.randn(1010, 130).requires_grad_()
        y = CALLS[call](x)
        (y * skimp.arange(130.0)).sum().backward()
        return [np.asarray(t.detach()).tobytes() for t in (y, x.grad)]

    got = bits()
    monkeypatch.setattr(operands, "MIDDLE", 0)
    assert got == bits()


@pytest.mark.parametrize("dtype", [skimp.float32, skimp.float64])
def test_a_mask_of_more_dims(dtype: skimp.dtype) -> None:
    x = skimp.zeros(65537, dtype=dtype)
    assert x.masked_fill(skimp.ones(1, 65537, dtype=skimp.bool), 2).shape == (1, 65537)


@pytest.mark.parametrize("n", [200_000, 1 << 18, 700_001])
def test_sums_and_norms_have_the_same_bits_each_way(n: int) -> None:
    given = np.random.default_rng(1).standard_normal((2, n)).astype("f")
    kinds: list[Callable[[Any, Any, Any], Any]] = [
        lambda lib, x, y: x.norm(),
        lambda lib, x, y: x.sum(),
        lambda lib, x, y: (x - y).norm(),
        lambda lib, x, y: lib.nn.functional.mse_loss(x, y),
    ]
    for kind in kinds:
        wanted = kind(torch, *torch.from_numpy(given)).numpy()
        found = []
        for mode in ("never", "always", "auto"):
            for threads in (1, 2):
                with skimp.config.using(defer=mode, threads=threads):
                    found += [kind(skimp, *[skimp.from_numpy(a) for a in given]).numpy()]
        assert {one.tobytes() for one in found} == {found[0].tobytes()}
        np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-3)
