"""A deferred result that is asked for while it is computed: by what waits for it, and is computed
first so that what only waiting expressions keep alive goes. It is made once, and counted once.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.memory import storage as storages
from skimp._engine.memory.ledger import host

ACTIVATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "prelu": lambda f, y, w: f.prelu(y, w),
    "rrelu": lambda f, y, _: f.rrelu(y, 0.2, 0.2, True),
    "leaky_relu": lambda f, y, _: f.leaky_relu(y, 0.1),
    "celu": lambda f, y, _: f.celu(y, 0.7),
    "gated": lambda _, y, w: y * (y * w[:, None, None]).sigmoid(),
    "scaled": lambda _, y, w: y * w[:, None, None],
}
POOLS: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda f, y: f.max_pool2d(y, 2),
    "avg": lambda f, y: f.avg_pool2d(y, 2),
    "adaptive": lambda f, y: f.adaptive_max_pool2d(y, 5),
    "lp": lambda f, y: f.lp_pool2d(y, 2, 2),
}


@pytest.fixture(params=["auto", "always", "never"], autouse=True)
def mode(request: Any) -> Iterator[str]:
    with skimp.config.using(defer=request.param):
        yield request.param


def inputs(m: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    made = [rng.standard_normal(shape) for shape in ((16, 1, 28, 28), (16, 1, 3, 3), (16,))]
    x, *weights = [m.tensor(v.astype(np.float32)) for v in made]
    return [x, *[w.requires_grad_() for w in weights]]


def step(m: Any, pool: str, activation: str, x: Any, first: Any, slope: Any) -> list[Any]:
    f = m.nn.functional
    y = ACTIVATIONS[activation](f, f.conv2d(x, first), slope)
    POOLS[pool](f, y).sum().backward()
    return [w.grad for w in (first, slope) if w.grad is not None]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_steps_leave_nothing_counted(activation: str, pool: str) -> None:
    ours, theirs = inputs(skimp), inputs(torch)
    counts = []
    for _ in range(3):
        grads = step(skimp, pool, activation, *ours)
        wanted = step(torch, pool, activation, *theirs)
        for g, w in zip(grads, wanted, strict=True):
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-3, atol=1e-2)
        del grads
        gc.collect()
        counts.append((skimp.memory.memory_allocated(), host.made - host.dropped))
    assert counts[1] == counts[2]


def test_one_that_is_made_while_room_is_made_for_it(monkeypatch: Any, mode: str) -> None:
    if mode == "never":
        pytest.skip("nothing waits")
    x = skimp.ones(1 << 18)
    before = skimp.memory.memory_allocated()
    y = x.exp()
    s = y._storage
    assert s.deferred is not None
    admitted, ref = storages.taken, weakref.ref(s)

    def taken(*args: Any) -> Any:
        monkeypatch.setattr(storages, "taken", admitted)
        ref().materialize()  # type: ignore[union-attr]  # as what reads it does, computed to make room within a limit
        return admitted(*args)

    monkeypatch.setattr(storages, "taken", taken)
    s.materialize()
    assert skimp.memory.memory_allocated() - before == 1 << 20
    block = s.block
    assert block is not None
    np.testing.assert_allclose(y.numpy(), np.exp(x.numpy()), rtol=1e-6)
    del y, s, block
    gc.collect()
    assert skimp.memory.memory_allocated() == before
