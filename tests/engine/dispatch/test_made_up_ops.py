"""Ops that nobody has: one declaration of at most 15 lines each, and every form is there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import vmap as vmap_of_torch

import skimp
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import METHODS, OPS, rowwise, view
from skimp._engine.dispatch.rows import unary_row
from skimp._engine.memory.layout import Layout
from tests.ops.test_samples import check
from tests.support.made_up import declared
from tests.support.op_samples import registry, samples_of
from tests.support.samples import same, twin

ROW = [[0.5, -2.0, 0.25], [0.0, 3.0, -1.0]]


# -- the declarations ------------------------------------------------------------------------------


def declare_bend() -> None:
    unary_row(
        "bend",
        lambda x, out: np.divide(x, np.abs(x) + 1, out=out),
        lambda g, input: g / (input.abs() + 1) ** 2,
        autocast="float32",
        samples=lambda tensor: [(tensor(ROW),), (tensor(ROW)[:, 1],)],
        doc="input / (1 + |input|).",
    )


def declare_centre() -> None:
    @rowwise(
        inplace=True,
        out=True,
        rule=Rule("CentreBackward0", input=lambda g, dim: g - g.mean(dim, True)),
        autocast="float32",
        samples=lambda tensor: [(tensor(ROW), 1), (tensor(ROW), -2)],
    )
    def centre(input: Any, dim: int) -> Any:
        """The input without its mean along `dim`."""
        return input - input.mean(dim, True)


def declare_leading() -> None:
    def back(g: Any, input_shape: Any, n: int) -> Any:
        return skimp.cat([g, g.new_zeros((input_shape[0] - n, *input_shape[1:]))])

    rule = Rule("LeadingBackward0", input=back)
    samples = lambda tensor: [(tensor(ROW), 1), (tensor(ROW)[0], 2)]  # noqa: E731

    @view(rule=rule, inplace=rule, copy=True, samples=samples)
    def leading(layout: Layout, n: int) -> Layout:
        """The first `n` slices."""
        return Layout((n, *layout.shape[1:]), layout.strides, layout.offset)


def theirs_bend(input: Any, *, out: Any = None) -> Any:
    return torch.div(input, input.abs() + 1, out=out)


def theirs_centre(input: Any, dim: int, *, out: Any = None) -> Any:
    return torch.sub(input, input.mean(dim, True), out=out)


def theirs_leading(input: Any, n: int) -> Any:
    return input[:n]


MADE_UP: dict[str, tuple[Callable[[], None], Callable[..., Any]]] = {
    "bend": (declare_bend, theirs_bend),
    "centre": (declare_centre, theirs_centre),
    "leading": (declare_leading, theirs_leading),
}


# -- what follows ----------------------------------------------------------------------------------


@pytest.fixture(params=MADE_UP)
def op(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an op that is there, in both libraries, while the test runs."""
    name: str = request.param
    declare, theirs = MADE_UP[name]
    monkeypatch.setattr(torch, name, theirs, raising=False)
    with declared(declare):
        yield name


def calls(op: str) -> list[tuple[Any, ...]]:
    """The arguments of its samples, for PyTorch."""
    return [sample.args for sample in samples_of(op, (op,), count=9)]


@pytest.mark.parametrize("name", MADE_UP)
def test_a_declaration_is_short(name: str) -> None:
    body = inspect.getsource(MADE_UP[name][0]).strip().splitlines()[1:]
    assert len([line for line in body if line.strip()]) <= 15


def test_its_samples_are_found_and_agree(op: str) -> None:
    """As tests/ops/test_samples.py does with every op."""
    rows = registry()
    assert op in rows
    assert len(calls(op)) == 2
    check(op, rows[op])


def test_function_and_method(op: str) -> None:
    f = getattr(skimp, op)
    assert f.__name__ == op
    assert f.__doc__
    assert getattr(skimp.Tensor, op) is f
    for x, *rest in calls(op):
        same(getattr(twin(x), op)(*rest), getattr(torch, op)(x, *rest), 1e-7)


def test_what_is_no_tensor_is_refused(op: str) -> None:
    """In PyTorch's words, without a line about it in the declaration."""
    rest = [1] * (op != "bend")
    for name in (op, f"{op}_"):
        with pytest.raises(TypeError, match=f"{op}.* must be Tensor, not str"):
            getattr(skimp.Tensor, name)("a", *rest)


def test_large_tensors(op: str) -> None:
    """Beyond the fast path: deferred where that is on."""
    x = torch.linspace(-2, 2, 70000).reshape(7, 100, 100)
    rest = calls(op)[0][1:]
    same(getattr(skimp, op)(twin(x), *rest), getattr(torch, op)(x, *rest), 1e-6)


def test_in_place(op: str) -> None:
    for x, *rest in calls(op):
        ours = twin(x).clone()
        assert getattr(ours, f"{op}_")(*rest) is ours
        same(ours, getattr(torch, op)(x, *rest), 1e-7)
        assert ours._version == 1
    leaf = twin(x).requires_grad_()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        getattr(leaf, f"{op}_")(*rest)


def test_out(op: str) -> None:
    """Of a view, its copying twin's."""
    f = getattr(skimp, op if op != "leading" else "leading_copy")
    for x, *rest in calls(op):
        expected = getattr(torch, op)(x, *rest)
        out = skimp.empty(tuple(expected.shape), dtype=skimp.float64)
        assert f(twin(x), *rest, out=out) is out
        same(out, expected.contiguous(), 1e-7)
        with pytest.raises(RuntimeError, match=r"doesn't require|don't support automatic"):
            f(twin(x).requires_grad_(), *rest, out=out.detach().requires_grad_())


def test_the_view_shares_and_its_copy_does_not() -> None:
    with declared(declare_leading):
        x = skimp.zeros(3, 2)
        x.leading(2)[0] = 1
        assert x.tolist() == [[1, 1], [0, 0], [0, 0]]
        assert x.leading(2)._base is x
        skimp.leading_copy(x, 2)[1] = 5
        assert x.sum().item() == 2


def test_gradients(op: str) -> None:
    """First and second ones, of the op and of its form in place, and the graph's name."""
    for x, *rest in calls(op):
        f = getattr(skimp, op)
        ours = twin(x).requires_grad_()
        assert f(ours, *rest).grad_fn.name() == f"{op.capitalize()}Backward0"
        assert skimp.autograd.gradcheck(lambda t, f=f, r=rest: f(t, *r), (ours,))
        assert skimp.autograd.gradgradcheck(lambda t, f=f, r=rest: f(t, *r), (ours,))
        theirs = x.clone().requires_grad_()
        getattr(ours * 2, f"{op}_")(*rest).sum().backward()
        getattr(torch, op)(theirs * 2, *rest).sum().backward()
        same(ours.grad, theirs.grad, 1e-7)


def test_vmap(op: str) -> None:
    for x, *rest in calls(op):
        stacked = torch.stack([x, x * 3, x - 1], 1)

        def ours(t: Any, rest: Any = rest) -> Any:
            return getattr(skimp, op)(t, *rest)

        def theirs(t: Any, rest: Any = rest) -> Any:
            return getattr(torch, op)(t, *rest)

        found = skimp.func.vmap(ours, 1)(twin(stacked))
        same(found, vmap_of_torch(theirs, 1)(stacked), 1e-7, strides=False)


def test_autocast(op: str) -> None:
    """By the class in its row: float32; a row without one leaves types alone."""
    x, *rest = calls(op)[0]
    with skimp.autocast("cpu"):
        found = getattr(skimp, op)(twin(x.bfloat16()), *rest)
    wanted = skimp.float32 if OPS[op].autocast else skimp.bfloat16
    assert found.dtype is wanted
    assert (OPS[op].autocast is None) is (op == "leading")


def test_nothing_is_left() -> None:
    before = len(OPS), len(METHODS), len(vars(skimp.Tensor)), len(vars(skimp))
    for declare, _ in MADE_UP.values():
        with declared(declare):
            assert len(OPS) > before[0]
    assert (len(OPS), len(METHODS), len(vars(skimp.Tensor)), len(vars(skimp))) == before
