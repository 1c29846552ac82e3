"""Large tensors that are written over: values, versions and gradients as PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import skimp

OPS: dict[str, Any] = {
    "add_": lambda t, o: t.add_(o),
    "mul_ by what waits": lambda t, o: t.mul_(o.sin()),
    "exp_": lambda t, o: t.exp_(),
    "half of itself": lambda t, o: t.mul_(0.5),
}
TARGETS: dict[str, Any] = {
    "a result": lambda a: a * 1,
    "turned": lambda a: (a * 1).t(),
    "a part": lambda a: (a * 1)[1:],
    "what waits": lambda a: a.sin(),
    "no history": lambda a: a.detach().clone(),
}


def _written(lib: Any, x: Any, y: Any, target: str, op: str) -> list[Any]:
    a, b = lib.tensor(x, requires_grad=True), lib.tensor(y, requires_grad=True)
    t = TARGETS[target](a)
    if target != "what waits":
        t.data_ptr()
    read = t * 2  # of the values before
    t = OPS[op](t, b[: len(t)])
    found = [t.detach().numpy().copy(), read.detach().numpy(), t._version]
    ((t + read).sum() + a.sum()).backward()
    return [*found, *[None if one.grad is None else one.grad.numpy() for one in (a, b)]]


def test_what_is_written_over_a_large_tensor() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 370, 370)).astype(np.float32)
    for target in TARGETS:
        for op in OPS:
            ours, theirs = [_written(lib, x, y, target, op) for lib in (skimp, torch)]
            for mine, wanted in zip(ours, theirs, strict=True):
                if wanted is None:
                    assert mine is None
                else:
                    np.testing.assert_allclose(mine, wanted, 1e-5, 1e-5, err_msg=f"{target} {op}")


def test_small_tensors_are_written_beside_other_shapes() -> None:
    """By kernels that want dense operands, with gaps or turned, and into `out`."""

    def run(t: Any) -> list[Any]:
        found = []
        for turn in (lambda x: x, lambda x: x.t(), lambda x: x.repeat_interleave(2, 0)[::2]):
            row, column = t.tensor([0.5, -1.0, 2.0]), t.tensor([[1.5], [-0.5], [0.25]])
            x = turn(t.arange(9.0).reshape(3, 3) / 4 - 1)
            made = [x.clamp_(row, None), x.lerp_(row, 0.25), x.addcmul_(row, column, value=2)]
            made += [x.sub_(row, alpha=3), x.lerp_(column, column), x.clamp_max_(column)]
            out = turn(t.zeros(3, 3))
            made += [t.add(x, row, alpha=2, out=out), t.maximum(row, column, out=out), out]
            found += [(y.stride(), y.tolist()) for y in made]
        return found

    assert run(skimp) == run(torch)
