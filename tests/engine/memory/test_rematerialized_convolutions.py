"""Results of convolutions that are little work, and sums with a shortcut, are made again for
backward: the bits, errors and gradients of kept ones, and fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.memory.ledger import host

MIB = 1 << 20
FEW = 1 << 14
WIDE = 64
MADE = 16 * WIDE * 32 * 32 * 4  # bytes of the first convolution's result: 4 MiB

# the input's channels, the kernel's sides, groups, and whether the input has a gradient
FIRST: dict[str, tuple[int, int, int, bool]] = {
    "pointwise": (16, 1, 1, True),
    "of images": (3, 3, 1, False),
    "of images with a gradient": (3, 3, 1, True),
    "depthwise": (WIDE, 3, WIDE, True),
}
BETWEEN: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda f, y: f.relu(f.batch_norm(y, None, None, training=True)),
    "relu6 in place": lambda f, y: f.relu6(f.batch_norm(y, None, None, training=True), True),
    "silu": lambda f, y: f.silu(f.batch_norm(y, None, None, training=True)),
    "silu alone": lambda f, y: f.silu(y),
    "gelu of a norm for each image": lambda f, y: f.gelu(f.group_norm(y, 4)),
}


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with skimp.config.using(defer="auto"):
        yield


def inputs(m: Any, first: str, bias: bool = True) -> dict[str, Any]:
    channels, side, groups, wanted = FIRST[first]
    rng = np.random.default_rng(0)
    made = {
        "x": rng.standard_normal((16, channels, 32, 32)),
        "weight": rng.standard_normal((WIDE, channels // groups, side, side)) / side,
        "second": rng.standard_normal((8, WIDE, 1, 1)) / 8,
    }
    if bias:
        made["bias"] = rng.standard_normal(WIDE)
    given = {k: m.tensor(v.astype(np.float32)).requires_grad_() for k, v in made.items()}
    given["x"].requires_grad_(wanted)
    return given


def convolved(m: Any, given: dict[str, Any], first: str) -> Any:
    _, side, groups, _ = FIRST[first]
    steps = {"padding": side // 2, "groups": groups}
    return m.nn.functional.conv2d(given["x"], given["weight"], given.get("bias"), **steps)


def forward(m: Any, given: dict[str, Any], first: str, between: str) -> Any:
    h = BETWEEN[between](m.nn.functional, convolved(m, given, first))
    return m.nn.functional.conv2d(h, given["second"])


def gradients(given: dict[str, Any]) -> list[Any]:
    return [t.grad.detach().numpy() for t in given.values() if t.requires_grad]


def alike(ours: list[Any], theirs: list[Any], rtol: float = 5e-3) -> None:
    """A bias before a norm has a gradient of rounding errors alone."""
    most = max([np.abs(other).max() for other in theirs])
    for one, other in zip(ours, theirs, strict=True):
        least = max(rtol / 20 * np.abs(other).max(), 1e-6 * most)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=least)


def step(m: Any, first: str, between: str, bias: bool = True) -> list[Any]:
    given = inputs(m, first, bias)
    out = forward(m, given, first, between)
    loss = (out * out).mean()
    del out
    loss.backward()
    return [loss.detach().numpy(), *gradients(given)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("first", FIRST)
def test_the_same_bits_as_if_it_were_kept(first: str, between: str, bias: bool) -> None:
    again = step(skimp, first, between, bias)
    with skimp.config.using(rematerialize_from=1 << 40):
        kept = step(skimp, first, between, bias)
    for one, other in zip(again, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    alike(again, step(torch, first, between, bias))


@pytest.mark.parametrize("between", ["relu", "relu6 in place", "silu", "silu alone"])
@pytest.mark.parametrize("first", FIRST)
def test_nothing_of_it_is_kept(first: str, between: str) -> None:
    given = inputs(skimp, first)
    before = host.allocated
    loss = forward(skimp, given, first, between).sum()
    loss.item()
    assert host.allocated - before <= FEW
    host.reset_peak()
    loss.backward()
    # what is made again, its activation, and the gradients of both; the input's at last
    mine = given["x"].nbytes if given["x"].requires_grad else 0
    assert host.peak - before <= 4 * MADE + FEW + mine


def test_much_work_is_kept() -> None:
    given = inputs(skimp, "pointwise")
    wide = skimp.randn(WIDE, 16, 3, 3, requires_grad=True)
    before = host.allocated
    y = skimp.nn.functional.conv2d(given["x"], wide, padding=1)
    loss = skimp.nn.functional.batch_norm(y, None, None, training=True).square().sum()
    del y
    loss.item()
    assert host.allocated - before >= MADE


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", ["x", "weight", "bias"])
def test_a_write_to_what_it_is_made_of(first: str, name: str) -> None:
    """PyTorch's error, or where it has none the gradients of what was there before."""
    found = []
    for m in (skimp, torch):
        given = inputs(m, first)
        out = forward(m, given, first, "relu").sum()
        with m.no_grad():
            given[name].mul_(2)
        try:
            out.backward()
        except RuntimeError as error:
            found.append("modified by an inplace operation" in str(error))
        else:
            found.append(gradients(given))
    if True in found:
        assert found == [True, True]
        return
    alike(*found)


def test_a_bias_that_was_written_to_before_it_was_noted() -> None:
    found = []
    for m in (skimp, torch):
        given = inputs(m, "pointwise")
        y = convolved(m, given, "pointwise")
        with m.no_grad():
            given["bias"].mul_(2)
        m.nn.functional.silu(y).sum().backward()
        found.append(gradients({k: given[k] for k in ("x", "weight", "bias")}))
    alike(*found)


@pytest.mark.parametrize("gone", [True, False])
def test_a_write_to_the_result_is_noticed(gone: bool) -> None:
    for m in (skimp, torch):
        given = inputs(m, "pointwise")
        y = convolved(m, given, "pointwise")
        out = BETWEEN["relu"](m.nn.functional, y).sum()
        with m.no_grad():
            y.zero_()
        if gone:
            del y
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


def test_a_write_to_what_is_saved_of_it() -> None:
    """It is noticed, and what is made of the result has its values from before."""
    given = inputs(skimp, "pointwise")
    h = skimp.nn.functional.silu(convolved(skimp, given, "pointwise"))
    saved = h.grad_fn._saved_self
    values = saved.detach().numpy().copy()
    with skimp.no_grad():
        saved.mul_(2)
    np.testing.assert_array_equal(saved.detach().numpy(), 2 * values)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        h.sum().backward()


def test_backward_twice_and_through_itself() -> None:
    found = []
    for m in (skimp, torch):
        given = inputs(m, "pointwise")
        out = forward(m, given, "pointwise", "relu")
        grads = m.autograd.grad((out * out).mean(), list(given.values()), create_graph=True)
        sum([g.square().sum() for g in grads]).backward(retain_graph=True)
        once = given["weight"].grad.clone()
        sum([g.square().sum() for g in grads]).backward()
        found.append([once.numpy(), *gradients(given)])
    alike(*found, 2e-2)


@pytest.mark.parametrize("late", [True, False])
def test_within_a_budget_the_bits_are_the_same(late: bool) -> None:
    """Also of what was to be made again when it began."""
    free = step(skimp, "pointwise", "relu6 in place")
    given = inputs(skimp, "pointwise")
    loss: Any = None
    if late:
        loss = forward(skimp, given, "pointwise", "relu6 in place").square().mean()
    with skimp.memory.budget(host.allocated + 24 * MIB, spill=False):
        if loss is None:
            loss = forward(skimp, given, "pointwise", "relu6 in place").square().mean()
        loss.backward()
    for one, other in zip(free[1:], gradients(given), strict=True):
        np.testing.assert_array_equal(one, other)


def blocks(m: Any, count: int) -> tuple[Any, Any]:
    """Residual blocks of convolutions that are kept, and their input."""
    m.manual_seed(0)
    nn = m.nn
    convs = [nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(count + 1)]
    rng = np.random.default_rng(0)
    with m.no_grad():
        for conv in convs:
            conv.weight.copy_(m.tensor(rng.standard_normal(conv.weight.shape).astype(np.float32)))
    norms = [nn.BatchNorm2d(16) for _ in convs]
    x = m.tensor(rng.standard_normal((16, 16, 32, 32)).astype(np.float32))

    def run() -> Any:
        h = m.relu(norms[0](convs[0](x)))
        for conv, norm in zip(convs[1:], norms[1:], strict=True):
            y = norm(conv(h))
            y += h
            h = m.relu(y)
        return h

    return run, [conv.weight for conv in convs]


def of_blocks(m: Any, count: int) -> list[Any]:
    run, weights = blocks(m, count)
    run().square().mean().backward()
    return [w.grad.numpy() for w in weights]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_shortcut_is_made_again_with_the_sum(count: int) -> None:
    again = of_blocks(skimp, count)
    with skimp.config.using(rematerialize_from=1 << 40):
        for one, other in zip(again, of_blocks(skimp, count), strict=True):
            np.testing.assert_array_equal(one, other)
    alike(again, of_blocks(torch, count), 1e-2)


def test_a_sum_with_a_shortcut_keeps_the_convolutions_results_alone() -> None:
    run, _ = blocks(skimp, 3)
    before = host.allocated
    loss = run().sum()
    loss.item()
    assert 4 * MIB <= host.allocated - before <= 4 * MIB + FEW
