"""Tensors a little larger than small ones: what one call makes of them is what blocks make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
