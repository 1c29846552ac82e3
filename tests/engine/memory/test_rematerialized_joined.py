"""What was joined is made again for backward, of parts that are kept anyway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import host
from tests.support.running import default_mode

MIB = 1 << 20
FEW = 1 << 15


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with skimp.config.using(defer="auto"):
        yield


class Net:
    """Convolutions of 16 channels, 3 x 3, whose results are 1 MiB each."""

    def __init__(self, m: Any, last: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.m, self.rng = m, rng
        self.weights: list[Any] = []
        self.x = self.tensor((16, 16, 32, 32))
        if last:
            self.x = self.x.to(memory_format=m.channels_last)

    def tensor(self, shape: tuple[int, ...]) -> Any:
        return self.m.tensor(self.rng.standard_normal(shape).astype(np.float32))

    def conv(self, x: Any) -> Any:
        weight = (self.tensor((16, x.shape[1], 3, 3)) / 12).requires_grad_()
        self.weights.append(weight)
        return self.m.nn.functional.conv2d(x, weight, padding=1)

    def normed(self, x: Any) -> Any:
        F = self.m.nn.functional
        return F.relu(F.batch_norm(x, None, None, training=True))


def dense(net: Net, joined: bool = False) -> Any:
    """Each layer sees all before it: as they were joined, or joins them all anew."""
    x = net.conv(net.x)
    parts = [x]
    for _ in range(3):
        parts.append(net.conv(net.normed(x)))
        x = net.m.cat(parts if joined else [parts[-1], x], 1)
    del parts
    return net.conv(net.normed(x)).square().mean()


def dense_anew(net: Net) -> Any:
    return dense(net, True)


def dense_of_parts(net: Net) -> Any:
    """Nobody but what was joined keeps the parts."""
    parts = [net.conv(net.x)]
    for _ in range(3):
        parts.append(net.conv(net.normed(net.m.cat(parts, 1))))
    return net.conv(net.normed(net.m.cat(parts, 1))).square().mean()


def shaped_as_u(net: Net) -> Any:
    kept = net.normed(net.conv(net.x))
    below = net.conv(kept)
    x = net.m.cat([kept, below], 1)
    del below, kept
    return net.conv(x).square().mean()


PROGRAMS = {f.__name__: f for f in (dense, dense_anew, dense_of_parts, shaped_as_u)}


def step(m: Any, name: str, last: bool = False) -> list[Any]:
    net = Net(m, last)
    PROGRAMS[name](net).backward()
    return [w.grad.numpy() for w in net.weights]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits_as_if_it_were_kept(name: str, last: bool) -> None:
    again = step(skimp, name, last)
    with skimp.config.using(rematerialize_from=1 << 40):
        kept = step(skimp, name, last)
    for one, other in zip(again, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(again, step(torch, name, last), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3 * np.abs(other).max())


@pytest.mark.parametrize(
    ("name", "results"),
    [("dense", 5), ("dense_anew", 5), ("dense_of_parts", 5), ("shaped_as_u", 3)],
)
def test_each_part_is_kept_once(name: str, results: int) -> None:
    PROGRAMS[name](Net(skimp)).item()  # what is loaded the first time
    net = Net(skimp)
    before = host.allocated
    loss = PROGRAMS[name](net)
    loss.item()
    own = sum([w.nbytes for w in net.weights])
    assert host.allocated - before - own <= results * MIB + FEW


def write(m: Any, t: Any, unseen: bool) -> None:
    with m.no_grad():
        (t.data if unseen else t).mul_(3)


@pytest.mark.parametrize("whose", ["kept", "below"])
@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("when", ["before", "between", "after", "lent"])
def test_a_write_to_a_part(whose: str, unseen: bool, when: str) -> None:
    """The weight's gradient has the values that were joined."""
    found = []
    for m in (skimp, torch):
        net = Net(m)
        kept = net.normed(net.conv(net.x))
        net.conv(kept)  # saves it
        below = net.tensor((16, 8, 32, 32)).requires_grad_() * 2

        part = kept if whose == "kept" else below
        if when == "before":
            write(m, part, unseen)
        x = m.cat([kept, below], 1)
        if when == "between":
            write(m, part, unseen)
        out = net.conv(x).sum()
        del x
        if when == "lent":
            node = kept.grad_fn
            assert node._saved_result.shape == kept.shape
            node._saved_result.sum().item()
        if when in ("after", "lent"):
            write(m, part, unseen)
        (grad,) = m.autograd.grad(out, net.weights[-1])
        found.append(grad.numpy())
        del kept, below, part, out, net
    np.testing.assert_allclose(*found, rtol=1e-2, atol=1e-3 * np.abs(found[1]).max())


def test_halves_that_nobody_keeps_are_not_worth_it() -> None:
    net = Net(skimp)
    before = host.allocated
    x = skimp.cat([net.conv(net.x), net.conv(net.x)], 1)
    loss = net.conv(x).sum()
    loss.item()
    del x
    own = sum([w.nbytes for w in net.weights])
    assert host.allocated - before - own <= 2 * MIB + FEW


def test_other_types_and_empty_parts() -> None:
    found = []
    for m in (skimp, torch):
        net = Net(m)
        kept = net.normed(net.conv(net.x))
        parts = [kept, m.zeros(0), kept[:, :2].double().float(), kept[:, :0]]
        x = m.cat([*parts, m.ones(16, 1, 32, 32, dtype=m.bfloat16)], 1)
        net.conv(x).square().mean().backward()
        found.append([w.grad.numpy() for w in net.weights])
        del parts, kept, x
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3 * np.abs(other).max())


def peak_of(net: Net, name: str) -> int:
    gauge = host.open_gauge()
    before = host.allocated
    PROGRAMS[name](net).backward()
    host.close_gauge(gauge)
    return gauge.peak - before


@default_mode  # what is noted follows the mode
@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loose_budget_holds_what_is_held_without_one(name: str, spill: bool) -> None:
    peak_of(Net(skimp), name)  # what is loaded the first time
    free = peak_of(Net(skimp), name)
    with skimp.memory.budget(host.allocated + 128 * MIB, spill=spill):
        within = peak_of(Net(skimp), name)
    assert within <= free + FEW


@default_mode
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tight_budget_makes_again_what_stood_for_a_result(name: str) -> None:
    free, base = step(skimp, name), host.allocated
    peak = peak_of(Net(skimp), name)
    evictions = counts.evictions
    with skimp.memory.budget(base + peak + 5 * MIB // 4, spill=False):
        within = step(skimp, name)
    assert counts.evictions > evictions
    for one, other in zip(free, within, strict=True):
        np.testing.assert_array_equal(one, other)
