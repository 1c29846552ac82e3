"""Where a program leaves its plan, noting begins with the next op that is part of no other: also in
what backward, checkpoints, functions and transforms call of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import skimp as torch
from skimp._engine.autograd import runner
from skimp._engine.memory.ledger import host
from tests.engine.budget.holding import numbers
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted, and what must be there at once, follows the mode
F = torch.nn.functional


@pytest.fixture
def asleep() -> Iterator[Any]:
    """A budget without a file that notes nothing, as if it followed a plan."""
    with torch.memory.budget("64GiB", spill=False):
        budget: Any = host.budget
        budget._note_no_more()
        yield budget


def departs() -> list[bool]:
    """Leave the plan, and make something: whether noting has begun, and knows how that was made."""
    budget: Any = host.budget
    budget._note_soon()
    made = numbers(1).cumsum(0)
    return [budget.notes, getattr(made._storage, "recipe", None) is not None]


def in_checkpoint(found: list[Any], reentrant: bool) -> None:
    def f(x: Any) -> Any:
        found[:] = departs()
        return x * 2

    x = numbers(2).requires_grad_()
    torch.utils.checkpoint.checkpoint(f, x, use_reentrant=reentrant)


def in_recomputation(found: list[Any]) -> None:
    """In backward: the second run."""
    runs: list[int] = []

    def f(x: Any) -> Any:
        runs.append(1)
        if len(runs) == 2:
            found[:] = departs()
        return x.exp()

    x = numbers(2).requires_grad_()
    torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False).sum().backward()


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, found: list[Any], backward: bool) -> Any:
        ctx.found, ctx.backward_ = found, backward
        if not backward:
            found[:] = departs()
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        if ctx.backward_:
            ctx.found[:] = departs()
        return g * 2, None, None


def in_function(found: list[Any], backward: bool) -> None:
    x = numbers(2).requires_grad_()
    Function.apply(x, found, backward).sum().backward()


def in_hook(found: list[Any], register: str) -> None:
    x = numbers(2).requires_grad_()
    y = x.exp()
    if register == "node":
        y.grad_fn.register_hook(lambda *_: found.__setitem__(slice(None), departs()))
    elif register == "leaf":
        x.register_post_accumulate_grad_hook(lambda _: found.__setitem__(slice(None), departs()))
    else:
        y.register_hook(lambda _: found.__setitem__(slice(None), departs()))
    y.sum().backward()


def in_module_hook(found: list[Any]) -> None:
    net = torch.nn.Linear(512, 512)
    net.register_full_backward_hook(lambda *_: found.__setitem__(slice(None), departs()))
    net(numbers(2).view(512, 512).requires_grad_()).sum().backward()


def in_transform(found: list[Any], transform: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        if not found:
            found[:] = departs()
        return (x * x).sum()

    transform(f)(numbers(2).view(512, 512))


PLACES: dict[str, Callable[[list[Any]], None]] = {
    "checkpoint": lambda found: in_checkpoint(found, False),
    "reentrant checkpoint": lambda found: in_checkpoint(found, True),
    "recomputation": in_recomputation,
    "forward of a function": lambda found: in_function(found, False),
    "backward of a function": lambda found: in_function(found, True),
    "hook of a tensor": lambda found: in_hook(found, "tensor"),
    "hook of a node": lambda found: in_hook(found, "node"),
    "hook of a leaf": lambda found: in_hook(found, "leaf"),
    "hook of a module": in_module_hook,
    "grad": lambda found: in_transform(found, torch.func.grad),
    "vjp": lambda found: in_transform(
        found, lambda f: lambda x: torch.func.vjp(f, x)[1](torch.tensor(1.0))
    ),
    "jvp": lambda found: in_transform(found, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))),
    "vmap": lambda found: in_transform(found, torch.func.vmap),
    "jacrev": lambda found: in_transform(found, torch.func.jacrev),
}


@pytest.mark.parametrize("run", PLACES.values(), ids=PLACES)
def test_noting_begins_in_what_is_called_of_the_program(
    run: Callable[[list[Any]], None], asleep: Any
) -> None:
    found: list[Any] = []
    run(found)
    assert found == [True, True]


def test_noting_begins_in_a_recomputation_that_a_formula_asks_for_which_never_ran(
    monkeypatch: pytest.MonkeyPatch, asleep: Any
) -> None:
    """What runs the nodes of a plan is written when it is called first, with that below it."""
    plan: Any = numbers(2).requires_grad_().exp().grad_fn._skimp_plan
    monkeypatch.setattr(plan, "run", plan.run)
    runner.give(plan)
    found: list[Any] = []
    in_recomputation(found)
    assert found == [True, True]


def test_noting_begins_before_a_formula_that_works_on_arrays(asleep: Any) -> None:
    """In backward, whose ops are parts of formulas."""
    x = numbers(2).view(1, 4, 256, 256).requires_grad_()
    y = F.scaled_dot_product_attention(x, x, x).exp()
    found: list[bool] = []
    y.register_hook(lambda _: asleep._note_soon())
    x.register_hook(lambda _: found.append(asleep.notes))
    y.sum().backward()
    assert found == [True]


def test_noting_does_not_begin_where_an_op_may_have_taken_what_it_writes_to(asleep: Any) -> None:
    """What is saved for an op in place, is saved before its write."""
    found: list[Any] = []

    def pack(t: Any) -> Any:
        if not found:
            found[:] = departs()
        return t

    x = numbers(2).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = (x * 2).exp_()
    assert found == [False, False]
    y.sum().backward()
