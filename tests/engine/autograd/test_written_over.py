"""Results of an op that another writes over, recorded: by the fast path, as the general way does,
and as the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import skimp
from tests.support.frames import frames_of
from tests.support.programs import same

# whose formulas read the result, or neither: nobody asks for what was there before
WRITERS: dict[str, Callable[[Any, Any], Any]] = {
    "relu_": lambda torch, y: torch.relu_(y),
    "leaky_relu_": lambda torch, y: torch.nn.functional.leaky_relu_(y, 0.2),
    "elu_": lambda torch, y: torch.nn.functional.elu(y, inplace=True),
    "tanh_": lambda torch, y: y.tanh_(),
    "add_ of a number": lambda torch, y: y.add_(3),
    "add_ of itself": lambda torch, y: y.add_(y),
    "sub_ of a leaf": lambda torch, y: y.sub_(torch.ones_like(y).requires_grad_()),
    # and these ask
    "mul_ of a number": lambda torch, y: y.mul_(2.5),
    "hardtanh_": lambda torch, y: torch.nn.functional.hardtanh_(y),
    "silu_": lambda torch, y: torch.nn.functional.silu(y, inplace=True),
}


def numbers(torch: Any) -> Any:
    return torch.arange(-3.0, 3.0).reshape(2, 3).requires_grad_()


@pytest.mark.parametrize("name", WRITERS)
def test_gradients_nodes_and_versions(name: str) -> None:
    write = WRITERS[name]

    def program(torch: Any) -> Any:
        x, found = numbers(torch), []
        y = x * 2 + 1
        before = y.grad_fn
        assert write(torch, y) is y
        found += [y.grad_fn.name(), y._version, y.requires_grad, y.is_leaf]
        assert before in [node for node, _ in y.grad_fn.next_functions]
        (y * y).sum().backward()
        turned = (x * 2).t()  # a view is written to: its base as well
        write(torch, turned)
        (turned * turned).sum().backward()
        return [*found, y.detach(), x.grad]

    same(program)


@pytest.mark.parametrize("name", WRITERS)
def test_hooks_and_kept_gradients_stay_where_they_were(name: str) -> None:
    write = WRITERS[name]

    def program(torch: Any) -> Any:
        x, seen = numbers(torch), []
        y = x * 2
        y.register_hook(lambda g: seen.append(g.clone()))
        write(torch, y)
        y.register_hook(lambda g: seen.append(g.clone()))
        z = x * 3
        z.retain_grad()
        write(torch, z)
        ((y + z) ** 2).sum().backward()
        return [x.grad, z.grad, *seen]

    same(program)


def test_what_was_saved_before_is_missed() -> None:
    def program(torch: Any) -> Any:
        x = numbers(torch)
        y = x.exp()
        y.relu_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            x.relu_()
        with torch.no_grad():
            z = x * 1
            z.relu_()
        return y.detach(), z, z.requires_grad

    same(program)


@pytest.mark.skipif(not skimp.config.small_below, reason="everything is deferred")
@pytest.mark.parametrize("name", ["relu_", "leaky_relu_", "add_ of a number"])
def test_it_is_as_short_as_that_of_a_new_result(name: str) -> None:
    x, made = numbers(skimp), []

    def again() -> None:
        made[:] = [x * 2]

    frames = frames_of(lambda: WRITERS[name](skimp, made[0]), again)
    assert len(frames) < 15  # the general way: 50
