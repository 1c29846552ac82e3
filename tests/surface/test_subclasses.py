"""Classes that programs derive from: what PyTorch's don't have is a subclass's own to assign."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch as oracle

import skimp
from skimp._compat.refusals import Refusal

SPACES = [
    "nn", "nn.utils.parametrize", "nn.utils.prune", "optim", "optim.lr_scheduler", "distributions",
    "distributions.transforms", "distributions.constraints", "utils.data", "amp",
]  # fmt: skip
TENSORS = skimp.Tensor, skimp.autograd.graph.Node
# PyTorch has them on instances, or on another class of the family
THEIRS = {"_param", "_batch_dims", "_new"}


def _private(cls: Any, of: Any) -> list[str]:
    return [n for n in set(dir(cls)) - set(dir(of)) - THEIRS if n[0] == "_" and n[:2] != "__"]


@pytest.mark.parametrize("space", SPACES)
def test_a_subclass_may_take_every_private_name(space: str) -> None:
    """`_persistent`, `_options`, `_state`: what is skimp's own says so."""
    ours, theirs = (
        importlib.import_module(f"skimp.{space}"),
        importlib.import_module(f"torch.{space}"),
    )
    taken, count = {}, 0
    for name, cls in vars(theirs).items():
        mine = getattr(ours, name, None)
        if not isinstance(cls, type) or not isinstance(mine, type) or type(mine) is Refusal:
            continue
        if issubclass(mine, TENSORS):
            continue
        count += 1
        if own := [n for n in _private(mine, cls) if not n.startswith("_skimp_")]:
            taken[name] = sorted(own)
    assert count > 1
    assert taken == {}


def test_what_instances_hold_is_pytorchs() -> None:
    assert set(vars(skimp.nn.Module())) <= set(vars(oracle.nn.Module()))
    made = [
        (lib.optim.lr_scheduler.StepLR(lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], 0.1), 3))
        for lib in (skimp, oracle)
    ]
    assert set(vars(made[0])) <= set(vars(made[1]))
    assert set(vars(made[0].optimizer)) <= set(vars(made[1].optimizer)) | set(
        dir(made[1].optimizer)
    )
