"""Activations of convolution nets that backward makes again: the bits, errors and aliases of kept
ones, and one tensor a layer instead of two.
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
from skimp._engine.memory.ledger import host
from skimp.utils.checkpoint import checkpoint

MIB = 1 << 20
IMAGES = (16, 16, 32, 32)  # of float32: 1 MiB
CHANNELS = IMAGES[1]
FEW = 16 * CHANNELS * 4  # bytes of vectors
STATE = 2 * 5056  # of the generator, which a checkpoint keeps and restores

ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda f, y: f.relu(y),
    "relu in place": lambda f, y: f.relu(y, inplace=True),
    "relu6": lambda f, y: f.relu6(y),
    "relu6 in place": lambda f, y: f.relu6(y, inplace=True),
    "leaky_relu": lambda f, y: f.leaky_relu(y, 0.1),
    "leaky_relu in place": lambda f, y: f.leaky_relu(y, 0.1, inplace=True),
    "elu": lambda f, y: f.elu(y),
    "elu in place": lambda f, y: f.elu(y, inplace=True),
    "silu": lambda f, y: f.silu(y),
    "hardswish": lambda f, y: f.hardswish(y),
    "sigmoid": lambda _, y: y.sigmoid(),
    "tanh": lambda _, y: y.tanh(),
    "softplus": lambda f, y: f.softplus(y, 2, 10),
}


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with skimp.config.using(defer="auto"):
        yield


def inputs(m: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {
        "x": rng.standard_normal(IMAGES),
        "first": rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 12,
        "scale": rng.uniform(0.5, 1.5, CHANNELS),
        "shift": rng.standard_normal(CHANNELS),
        "second": rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 12,
    }
    return {k: m.tensor(v.astype(np.float32)).requires_grad_() for k, v in made.items()}


def forward(m: Any, name: str, given: dict[str, Any], training: bool = True) -> Any:
    """Convolution, batch_norm, activation, convolution."""
    F = m.nn.functional
    mean, spread = m.zeros(CHANNELS), m.ones(CHANNELS)
    x = F.conv2d(given["x"], given["first"], padding=1)
    y = F.batch_norm(x, mean, spread, given["scale"], given["shift"], training)
    del x
    h = ACTIVATIONS[name](F, y)
    del y
    return F.conv2d(h, given["second"], padding=1)


def step(m: Any, name: str, training: bool = True) -> list[Any]:
    given = inputs(m)
    y = forward(m, name, given, training)
    loss = (y * y).mean()
    del y
    loss.backward()
    return [loss.detach().numpy(), *[t.grad.numpy() for t in given.values()]]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_same_bits_as_if_it_were_kept(name: str, training: bool) -> None:
    made_again = step(skimp, name, training)
    with skimp.config.using(rematerialize_from=1 << 40):
        kept = step(skimp, name, training)
    for one, other in zip(made_again, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(made_again, step(torch, name, training), strict=True):
        np.testing.assert_allclose(one, other, rtol=5e-3, atol=1e-4 * np.abs(other).max())


def held(name: str, **settings: Any) -> tuple[int, int]:
    """Bytes that the graph holds when backward begins, and the peak of the whole step."""
    with skimp.config.using(**settings):
        given = inputs(skimp)
        before = host.allocated
        host.reset_peak()
        out = forward(skimp, name, given)
        loss = out.sum()
        loss.item()
        del out
        graph = host.allocated - before  # not the public counter: that materializes what waits
        loss.backward()
        return graph, host.peak - before


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_layer_keeps_one_tensor(name: str) -> None:
    """batch_norm's input; statistics, and its line for each channel, come to a few vectors."""
    graph, peak = held(name)
    assert MIB <= graph <= MIB + FEW
    kept, most = held(name, rematerialize_from=1 << 40)
    assert kept - graph > 0.99 * MIB
    assert peak <= most + 4  # the sum's gradient, one number, which an expression may still read


@pytest.mark.parametrize("name", ["relu", "relu in place", "leaky_relu in place", "silu"])
def test_a_checkpoints_second_forward_keeps_one_tensor_too(name: str) -> None:
    def peak(again: bool, **settings: Any) -> int:
        given = inputs(skimp)

        def block(x: Any) -> Any:
            for _ in range(4):
                x = forward(skimp, name, given | {"x": x})
            return x.sum()

        before = host.allocated
        host.reset_peak()
        with skimp.config.using(**settings):
            loss = (
                checkpoint(block, given["x"], use_reentrant=False) if again else block(given["x"])
            )
            loss.backward()
        return host.peak - before

    assert peak(True) <= peak(False) + STATE + 8  # and two numbers: the loss, its gradient
    assert peak(True, rematerialize_from=1 << 40) > peak(True) + 2.9 * MIB


@pytest.mark.parametrize("swish", ["x * x.sigmoid()", "silu", "relu of a norm"])
def test_what_a_function_or_a_checkpoint_is_given_is_kept_as_an_op_would(swish: str) -> None:
    """When they save it, nobody has computed it yet."""
    F = skimp.nn.functional

    def graph(call: Callable[[Any, Any], Any], **settings: Any) -> int:
        given = inputs(skimp)
        with skimp.config.using(**settings):
            before = host.allocated
            x = F.conv2d(given["x"], given["first"], padding=1)
            if swish == "silu":
                y = F.silu(x)
            elif swish == "relu of a norm":
                y = F.relu(F.batch_norm(x, None, None, training=True))
            else:
                y = x * x.sigmoid()
            del x
            out = call(y, given["second"])
            out.item()
            del y
            bytes_held = host.allocated - before
            out.backward()
            return bytes_held

    def block(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, padding=1).sum()

    def again(x: Any, w: Any) -> Any:
        return checkpoint(block, x, w, use_reentrant=False)

    plain = graph(block)
    assert graph(again) <= plain + STATE
    assert graph(again, rematerialize_from=1 << 40) > plain + 0.99 * MIB


@pytest.mark.parametrize("name", ["relu", "relu in place", "leaky_relu"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_write_to_the_result_is_noticed(name: str, gone: bool) -> None:
    errors = []
    for m in (skimp, torch):
        given = inputs(m)
        F = m.nn.functional
        y = F.batch_norm(F.conv2d(given["x"], given["first"], padding=1), None, None, training=True)
        h = ACTIVATIONS[name](F, y)
        out = F.conv2d(h, given["second"], padding=1)
        h.add_(1)  # spoils it
        del y
        if gone:
            del h
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            out.sum().backward()
        errors.append(str(caught.value))
    ours, theirs = errors
    version = theirs[theirs.index("is at version") :].split(".")[0]
    assert version in ours
    assert "h.add_(1)  # spoils it" in ours


def test_a_write_to_what_it_is_made_of_comes_too_late() -> None:
    grads = []
    for m in (skimp, torch):
        given = inputs(m)
        F = m.nn.functional
        x = F.conv2d(given["x"], given["first"], padding=1)
        h = F.relu(F.batch_norm(x, None, None, training=True))
        out = F.conv2d(h, given["second"], padding=1)
        del h
        with m.no_grad():
            x.zero_()
        (grad,) = m.autograd.grad(out.sum(), given["second"])
        grads.append(grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-3, atol=1e-2)


def test_everything_goes_with_the_graph() -> None:
    given = inputs(skimp)
    before = host.allocated
    out = forward(skimp, "relu in place", given)
    node = weakref.ref(out.grad_fn.next_functions[0][0])
    del out
    gc.collect()
    assert node() is None
    assert host.allocated == before


def test_the_program_may_keep_the_result() -> None:
    given = inputs(skimp)
    F = skimp.nn.functional
    x = F.conv2d(given["x"], given["first"], padding=1)
    h = F.relu(F.batch_norm(x, None, None, training=True))
    out = F.conv2d(h, given["second"], padding=1)
    before = host.allocated
    saved = out.grad_fn._saved_input
    assert saved.data_ptr() == h.data_ptr()
    assert host.allocated <= before  # what was to make it goes
    out.sum().backward()
    assert skimp.equal(h, F.relu(F.batch_norm(x, None, None, training=True)))


def test_a_sum_of_two_branches_is_made_of_both_inputs() -> None:
    """Of a shortcut that nobody below keeps it is not: that would keep the shortcut."""

    def graph(shortcut: bool) -> int:
        given = inputs(skimp)
        F = skimp.nn.functional
        before = host.allocated
        x = F.conv2d(given["x"], given["first"], padding=1)
        z = F.conv2d(given["x"], given["second"], padding=1)
        y = F.batch_norm(x, None, None, training=True)
        y = y + (z if shortcut else F.batch_norm(z, None, None, training=True))
        h = F.relu(y)
        out = F.conv2d(h, given["second"], padding=1).sum()
        out.item()
        del x, y, z, h
        return host.allocated - before

    assert 2 * MIB <= graph(False) <= 2 * MIB + FEW  # the inputs of both norms
    assert 2 * MIB <= graph(True) <= 2 * MIB + FEW  # the norm's input, and the result


def test_backward_twice_and_through_itself() -> None:
    results = []
    for m in (skimp, torch):
        given = inputs(m)
        out = forward(m, "relu", given)
        grads = m.autograd.grad((out * out).mean(), list(given.values()), create_graph=True)
        sum([g.square().sum() for g in grads]).backward(retain_graph=True)
        once = given["x"].grad.clone()
        sum([g.square().sum() for g in grads]).backward()
        results.append([once.numpy(), *[t.grad.numpy() for t in given.values()]])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-3 * np.abs(other).max())


def test_checkpoints_and_hooks_see_the_tensor_itself() -> None:
    given = inputs(skimp)
    F = skimp.nn.functional
    seen: list[Any] = []

    def pack(t: Any) -> Any:
        seen.append(t.data_ptr())
        return t

    with skimp.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        h = F.relu(F.batch_norm(F.conv2d(given["x"], given["first"], padding=1), None, None,
                                training=True))  # fmt: skip
        out = F.conv2d(h, given["second"], padding=1)
    assert seen.count(h.data_ptr()) == 2  # by the ReLU and by the convolution
    out.sum().backward()
    again = inputs(skimp)
    checkpoint(lambda: forward(skimp, "relu in place", again), use_reentrant=False).sum().backward()
    plain = inputs(skimp)
    forward(skimp, "relu in place", plain).sum().backward()
    for name, t in again.items():
        assert skimp.equal(t.grad, plain[name].grad)


@pytest.mark.parametrize("spill", [True, False])
def test_within_a_budget_the_bits_are_the_same(spill: bool) -> None:
    free = step(skimp, "relu in place")
    with skimp.memory.budget(host.allocated + 7 * MIB, spill=spill):
        bound = step(skimp, "relu in place")
    for one, other in zip(free, bound, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_result_of_small_tensors_is_made_of_these() -> None:
    """Pairs of 600 rows and 600 columns: a million results, of which backward needs the values."""
    results = []
    for m in (skimp, torch):
        rows = m.linspace(-1, 1, 600).reshape(600, 1).requires_grad_()
        columns = m.linspace(0, 1, 600).requires_grad_()
        before = host.allocated
        loss = (rows - columns).square().neg().exp().sum()
        loss.item()
        if m is skimp:
            assert host.allocated - before <= 600 * 600 * 4 + FEW  # the square's input, no result
        loss.backward()
        results.append((rows.grad.numpy(), columns.grad.numpy()))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
