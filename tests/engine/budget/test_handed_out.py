"""Arrays that are handed out may be written to unseen: no recipe reads their bytes or makes them,
until the last of them is dead.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import evictable, setting
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from tests.engine.budget.holding import held, numbers
from tests.engine.budget.test_recipes import drop
from tests.support.running import default_mode

# what is noted follows the mode
pytestmark = [default_mode, pytest.mark.usefixtures("obeyed")]

WAYS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda t: t.numpy(),
    "numpy of a part": lambda t: t[3].numpy(),
    "a view of it": lambda t: t.numpy().view(np.int32)[3:5].T,
    "a view of a class": lambda t: t.numpy().view(np.recarray)[3:5],
    "asarray": np.asarray,
    "DLPack": lambda t: np.from_dlpack(t)[2:],
    "a capsule": lambda t: t.__dlpack__(),
    "a memoryview": lambda t: memoryview(t.numpy())[3:],
    "a tensor": lambda t: torch.from_numpy(t.numpy())[5:],
}


def pair() -> tuple[Any, Any]:
    return numbers(0).view(512, 512), numbers(1).view(512, 512)


def bits(t: Any) -> bytes:
    found: bytes = t._storage.flat().tobytes()
    return found


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_recipe_reads_what_was_handed_out_once_that_is_dead(way: Callable[[Any], Any]) -> None:
    x, w = pair()
    known = x._storage
    first, second = way(x), way(x)
    y = x @ w
    del first
    z = x @ w
    assert known.has_outsiders()
    del second
    assert not known.has_outsiders()
    now = x @ w
    want = bits(now)
    assert not drop(y)
    assert not drop(z)
    assert drop(now)
    assert bits(now) == want


def test_a_recipe_from_before_is_not_followed_afterwards() -> None:
    x, w = pair()
    y = x @ w
    want = bits(y)
    x.numpy()[:] = 7
    assert not drop(y)
    assert bits(y) == want


def test_an_expression_that_is_computed_on_the_way_out_is_not_made_again() -> None:
    """Of a storage that no budget knew when it was handed out."""
    x, w = pair()
    want = x.clone() * w + 1
    bits(want)
    y = x * w + 1
    evictable.leave(x._storage)
    x.numpy()[:] = 7
    assert not drop(y)
    assert torch.equal(y, want)


WRITTEN: dict[str, Callable[[Any], Any]] = {
    "not": lambda t: t,
    "pointwise": lambda t: t.mul_(2),
    "draw": lambda t: t.bernoulli_(0.5),
    "copy": lambda t: t.copy_(numbers(5).view(512, 512)),
}


@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
def test_what_an_outsider_wrote_stays(write: Callable[[Any], Any]) -> None:
    """What was made by an op, or is while an array is alive, is not what the op makes."""
    x, w = pair()
    made = x @ w
    array = made.numpy()
    write(made)
    array[0] = 7
    want = bits(made)
    del array
    assert not drop(made)
    assert bits(made) == want
    after = made @ w
    want = bits(after)
    assert drop(after)
    assert bits(after) == want


def trained(look: bool) -> list[bytes]:
    """Three steps of a net whose parameters and gradients a program may look at after each."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *[torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64),
            torch.nn.LayerNorm(64),
        ) for _ in range(6)]
    )  # fmt: skip
    x = numbers(2, 1024 * 64).view(1024, 64)
    for _ in range(3):
        net.zero_grad()
        net(x).square().mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                if look:
                    assert np.isfinite(p.detach().numpy()).all()
                    assert np.isfinite(p.grad.numpy()).all()
    return [bits(p) for p in net.parameters()]


def test_a_program_that_looks_at_its_parameters_fits_as_one_that_does_not() -> None:
    setting.set_budget(None)
    gc.collect()
    base = host.allocated
    torch.memory.reset_peak_memory_stats()
    want = trained(look=False)
    room = int(0.6 * (host.peak - base))
    gc.collect()
    pool.empty_cache()
    before, most = counts.rematerialized_bytes, held() + room
    torch.memory.reset_peak_memory_stats()
    with torch.memory.budget(most, spill=False):
        assert trained(look=True) == want
    assert host.peak <= most
    assert counts.rematerialized_bytes > before
