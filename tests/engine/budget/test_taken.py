"""A budget that wakes takes the arrays that small tensors keep, whichever thread is in an op then.

Each op is run once for each of its moments, at which every array is taken: it has the same bits.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import spending
from tests.engine.memory.test_interrupts import Moments
from tests.support.running import default_mode

pytestmark = default_mode

F = torch.nn.functional


class Takes(Moments):
    """At one moment, a budget knows all storages, as it does when another thread needs room."""

    def _hook(self, frame: FrameType, event: str, arg: Any) -> None:
        if event in ("c_call", "return") or "skimp" not in frame.f_code.co_filename:
            return
        self.seen += 1
        if self.seen == self.at:
            sys.setprofile(None)
            spending.Spending(1 << 30, spills=False, least=1).enrol_all(settled=False)


@pytest.fixture
def few() -> Iterator[None]:
    """Only what a test makes is looked at each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def seeded(*size: int) -> Any:
    rng = np.random.default_rng(len(size))
    return torch.tensor(rng.random(size, np.float32)).requires_grad_()


def written(write: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, w: write(x.detach().clone(), w.detach())


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "layer_norm": lambda x, w: F.layer_norm(x.view(2, 2, 6), (6,), w[0], w[1]),
    "layer_norm alone": lambda x, w: F.layer_norm(x.detach().view(2, 2, 6), (6,)),
    "rms_norm": lambda x, w: F.rms_norm(x.detach(), (6,), w[0]),
    "softmax": lambda x, w: x.view(2, 2, 6).softmax(-1),
    "softmax of columns": lambda x, w: x.softmax(0),
    "log_softmax": lambda x, w: x.detach().view(2, 2, 6).log_softmax(-1),
    "roll by nothing": lambda x, w: x.roll(6, 1),
    "linear": lambda x, w: F.linear(x, w, w[:, 0]),
    "linear of one row": lambda x, w: F.linear(x[:1], w),
    "lerp_": written(lambda x, w: x.lerp_(w[:4] * 2, 0.3)),
    "clamp_": written(lambda x, w: x.clamp_(0.2, 0.4)),
    "add_": written(lambda x, w: x.add_(w[:4], alpha=3)),
    "exp_": written(lambda x, w: x.exp_()),
    "normal_": written(lambda x, w: x.normal_()),
}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_an_op_has_its_bits_whenever_a_budget_takes_arrays(op: Any, few: None) -> None:
    def run(moments: Moments | None = None) -> list[bytes]:
        torch.manual_seed(0)
        x, w = seeded(4, 6), seeded(6, 6)

        def program() -> Any:
            y = op(x, w)
            if y.requires_grad:
                (y * y).sum().backward()
            return y

        y = program() if moments is None else moments.run(program)
        found = [y.detach(), x.grad, w.grad]
        return [b"" if t is None else t.numpy().tobytes() for t in found]

    want = run()
    counted = Moments()
    counted.run(run)
    for at in range(1, 4 * counted.seen):
        takes = Takes(at)
        assert run(takes) == want, at
        if takes.seen < at:
            return
    raise AssertionError("there were more moments than an op has")
