"""The door for saved tensors: hooks, regions that keep nothing, and the list of what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.programs import Program, into, leaf, same

PROGRAMS: dict[str, Program] = {}
twin, refused = into(PROGRAMS), into(PROGRAMS, RuntimeError)


@twin
def hooks_pack_and_unpack(torch):
    log = []

    def pack(t):
        log.append(("pack", t.sum().item(), t.requires_grad, t.is_leaf))
        return t * 1

    def unpack(t):
        log.append("unpack")
        return t

    x = leaf(torch)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * 2).exp() * x
    y.sum().backward()
    return log, x.grad


@twin
def innermost_hooks_win(torch):
    x, log = leaf(torch), []

    def hooks(name):
        return torch.autograd.graph.saved_tensors_hooks(
            lambda t: (log.append(name), t)[1], lambda t: t
        )

    with hooks("outer"):
        x.exp()
        with hooks("inner"):
            x.exp()
        x.exp()
    return log


@into(PROGRAMS, TypeError)
def unpacked_number(torch):
    x = leaf(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: 3, lambda t: t):
        y = x * x
    y.sum().backward()


@refused
def pack_hook_writes(torch):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t):
        leaf(torch).exp()


@twin
def second_derivative_through_hooks(torch):
    x = leaf(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = (x * x).exp()
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return g, h


@twin
def save_on_cpu(torch):
    x = leaf(torch)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).exp()
    y.sum().backward()
    return x.grad


@refused
def disabled(torch):
    with torch.autograd.graph.disable_saved_tensors_hooks("nope"):
        x = leaf(torch)
        (x * x).sum().backward()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass


@refused
def disabled_inside_hooks(torch):
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        torch.autograd.graph.disable_saved_tensors_hooks("nope"),
    ):
        pass


@twin
def state_returns_on_exit(torch):
    with torch.autograd.graph.disable_saved_tensors_hooks("nope"):
        pass
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return leaf(torch).exp().grad_fn.name()


@twin
def raw_hooks(torch):
    x = leaf(torch)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 5, lambda t: t)
    y.sum().backward()
    return x.grad


@refused
def raw_hooks_twice(torch):
    y = leaf(torch).exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)


@refused
def raw_hooks_after_backward(torch):
    y = leaf(torch).exp()
    y.sum().backward()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)


@twin
def saved_attributes(torch):
    x, w = leaf(torch), torch.ones(4)
    y = x * w
    r = x.exp()
    return (
        y.grad_fn._saved_self,
        y.grad_fn._saved_other is w,
        r.grad_fn._saved_result,
        r.grad_fn._saved_result is r,
    )


@refused
def saved_attributes_after_backward(torch):
    y = leaf(torch) * leaf(torch)
    y.sum().backward()
    return y.grad_fn._saved_self


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    same(PROGRAMS[name])


def test_nothing_is_kept_without_a_message() -> None:
    x = skimp.ones(4, requires_grad=True)
    with skimp.autograd.graph.disable_saved_tensors_hooks():
        y = x.exp()
        z = x + 1
    z.sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 1]
    assert skimp.autograd.saved(y).nbytes == 0
    with pytest.raises(
        RuntimeError, match=r"ran inside disable_saved_tensors_hooks\(\).*test_saved.py:\d+"
    ):
        y.sum().backward()
    x.exp().sum().backward()


def test_hooks_are_off_where_nothing_is_kept() -> None:
    with (
        skimp.autograd.graph.disable_saved_tensors_hooks(),
        pytest.raises(RuntimeError, match="Saved tensor hooks are disabled here"),
        skimp.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass
    assert skimp._engine.autograd.modes.state.hooks == ()


def test_mutation_allowed() -> None:
    """Without the oracle, which imports a compiler for this: the gradient is that of x * x."""
    x = skimp.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with skimp.autograd.graph.allow_mutation_on_saved_tensors():
        a = x.clone()
        b = a * a
        a.mul_(5)
        b.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


@skimp.config.using(defer="auto")
def test_list_of_what_is_kept() -> None:
    x = skimp.ones(1000, requires_grad=True)
    y = x.exp()
    z = (y * y).sum()
    found = skimp.autograd.saved(z)
    assert [(s.op, s.name, s.kind, s.nbytes) for s in found] == [
        ("MulBackward0", "other", "saved", 4000),
        ("MulBackward0", "input", "shared", 0),
        ("ExpBackward0", "result", "shared", 0),
    ]
    assert found.nbytes == 4000
    assert "test_saved.py" in found[0].line
    assert "y.exp" not in found[0].line
    assert "4,000  bytes in all" in str(found)


@skimp.config.using(defer="auto")
def test_leaves_are_told_apart() -> None:
    x = skimp.ones(10, requires_grad=True)
    kinds = [s.kind for s in skimp.autograd.saved((x * 2 * x).sum())]
    assert kinds == ["leaf", "saved"]


def test_what_is_deferred_costs_nothing() -> None:
    with skimp.config.using(defer="always"):
        x = skimp.ones(100, requires_grad=True)
        y = x.exp()
        assert [s.kind for s in skimp.autograd.saved(y.sum())] == ["deferred"]


@pytest.mark.parametrize("lib", [skimp, torch])
def test_what_a_node_saved_is_listed(lib: Any) -> None:
    """Pruners and drawings of graphs go through `dir(grad_fn)`."""
    x = lib.ones(2, 5, requires_grad=True) * 1
    expected = {"_saved_dim": 1, "_saved_self_sym_sizes": (2, 5)}
    for pieces, sizes in ((2, {"_saved_split_size": 2}), ([1, 4], {"_saved_split_sizes": (1, 4)})):
        node = lib.split(x, pieces, 1)[0].grad_fn
        shown = {n: getattr(node, n) for n in dir(node) if n.startswith("_saved_")}
        assert shown == {**expected, **sizes}
    matrices = (x @ x.T).grad_fn
    assert {"_saved_self", "_saved_mat2", "_saved_mat2_sym_sizes"} <= set(dir(matrices))
    assert matrices._saved_mat2_sym_sizes == (5, 2)
