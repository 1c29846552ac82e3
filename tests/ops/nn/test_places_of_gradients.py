"""A batch norm's gradient takes the place of the one that comes in, and what is made again for a
convolution's goes once the weights' is there: fewer bytes, where nobody else has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.memory.ledger import host
from skimp._engine.memory.rematerialize import Rematerialized
from tests.support.running import default_mode

SHAPE = 8, 16, 64, 64
MADE = 4 * 8 * 16 * 64 * 64  # bytes of images: 2 MiB
LITTLE = MADE // 4


@pytest.fixture(autouse=True, params=["auto", "never"])
def on(request: Any) -> Iterator[None]:
    with skimp.config.using(defer=request.param):
        yield


def images(m: Any, seed: int = 0) -> Any:
    made = np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)
    return m.tensor(made).requires_grad_()


def norm(m: Any, x: Any) -> Any:
    return m.nn.functional.batch_norm(x, None, None, training=True)


def hooked(m: Any, x: Any, seen: list[Any]) -> Any:
    y = norm(m, x)
    y.register_hook(seen.append)
    return y * images(m, 1).detach()


def retained(m: Any, x: Any, seen: list[Any]) -> Any:
    y = norm(m, x)
    y.retain_grad()
    seen.append(y)
    return m.relu(y) * images(m, 1).detach()


def beside(m: Any, x: Any, seen: list[Any]) -> Any:
    """The sum gives both the same gradient."""
    return (m.sigmoid(x) + norm(m, x)) * images(m, 1).detach()


def twice(m: Any, x: Any, seen: list[Any]) -> Any:
    y = norm(m, x)
    return m.relu(norm(m, y)) + m.tanh(y)


def kept(m: Any, x: Any, seen: list[Any]) -> Any:
    """A result that a convolution has is the gradient of another norm's result."""
    y = m.nn.functional.gelu(x)
    z = norm(m, m.nn.functional.conv2d(y, images(m, 2)[0, :, :16, :1, None]))
    last = [y.detach()]
    z.register_hook(lambda g: last.pop())
    return z


def own(m: Any, x: Any, seen: list[Any]) -> Any:
    """A norm's input is the gradient of its result."""
    y = m.nn.functional.gelu(x)
    z = norm(m, y)
    last = [y.detach()]
    z.register_hook(lambda g: last.pop())
    return z + 1000 * m.tanh(y)


def given(m: Any, x: Any, seen: list[Any]) -> Any:
    """A result that a convolution has is a gradient, to which another is added."""

    class Give(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return last.pop()

    y, z = m.nn.functional.gelu(x), x * 1
    last = [y.detach()]
    c = m.nn.functional.conv2d(y, images(m, 2)[0, :, :16, :1, None])
    return c + m.tanh(z) + Give.apply(z)


PROGRAMS: list[Callable[..., Any]] = [hooked, retained, beside, twice, kept, own, given]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_others_have_stays_as_it_is(program: Callable[..., Any]) -> None:
    def run(m: Any) -> list[Any]:
        x, seen = images(m), []
        (program(m, x, seen) ** 2).mean().backward()
        found = [t.grad if t.requires_grad else t for t in [x, *seen]]
        return [t.detach().numpy() for t in found]

    for ours, theirs in zip(run(skimp), run(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4 * np.abs(theirs).max())


@pytest.mark.parametrize("by", ["backward", "grad"])
def test_a_gradient_that_the_program_gives_is_not_written_to(by: str) -> None:
    x, given = images(skimp), images(skimp, 1).detach()
    before = given.clone()
    y = norm(skimp, x)
    if by == "backward":
        y.backward(given)
    else:
        skimp.autograd.grad(y, x, given)
    assert skimp.equal(given, before)


@default_mode
@pytest.mark.parametrize(("side", "most"), [(1, 2), (3, 1)])
@pytest.mark.parametrize("last", ["nothing", "norm", "norm, relu"])
def test_backward_needs_one_image_less(side: int, most: int, last: str) -> None:
    """Beside what is kept for it; two with a first convolution that is made again."""
    f, ones = skimp.nn.functional, skimp.ones(16, 16, side, side) / 8
    with skimp.config.using(defer="auto"):
        x, weight, other = images(skimp), ones.clone().requires_grad_(), ones.requires_grad_()
        y = f.relu(norm(skimp, f.conv2d(x, weight, padding=side // 2)))
        y = f.conv2d(y, other, padding=side // 2)
        if last != "nothing":
            y = norm(skimp, y)
        if last == "norm, relu":
            y = f.relu(y)
        y = (y * y).sum()
        before = host.allocated
        host.reset_peak()
        y.backward()
    assert host.peak - before <= most * MADE + LITTLE


@default_mode
@pytest.mark.parametrize("write", [False, True])
def test_what_was_read_goes_back_unless_its_source_was_written_to(write: bool) -> None:
    x = images(skimp)
    wanted = skimp.nn.functional.gelu(x.detach()).numpy().copy()
    with skimp.config.using(defer="auto"):
        y = skimp.nn.functional.gelu(x)
        z = y * images(skimp, 1)
        del y
    assert z.grad_fn is not None
    s = z.grad_fn._saved_self._storage
    assert isinstance(s, Rematerialized)
    way = s.way_back()
    assert way is not None
    s.flat()
    if write:
        x.detach().zero_()
    before = host.allocated
    s.go_back(way)
    assert host.allocated == before - (0 if write else MADE)
    assert s.flat().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("times", [1, 2])
def test_what_a_convolution_has_again_within_a_budget(times: int) -> None:
    """Where what stood for a result is known to the budget once it is made."""
    f = skimp.nn.functional

    def step() -> bytes:
        x, weights = images(skimp).detach(), [skimp.ones(16, 16, 3, 3) / 8 for _ in range(3)]
        for weight in weights:
            x = f.relu(norm(skimp, f.conv2d(x, weight.requires_grad_(), padding=1)))
        loss = (x * x).mean()
        for i in range(times):
            loss.backward(retain_graph=i + 1 < times)
        return b"".join([w.grad.numpy().tobytes() for w in weights])

    wanted = step()
    host.reset_peak()
    step()
    with skimp.memory.budget(host.peak):
        assert step() == wanted
