"""Checkpointing: the same gradients from less memory, and an error where recomputation differs."""

from __future__ import annotations

import pytest
import torch as oracle

import skimp
from skimp._engine.memory.ledger import host
from skimp.autograd.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_early_stop,
)


def plainly(f, *args, use_reentrant):
    """The oracle's side: its own checkpoint imports a compiler, which takes seconds."""
    return f(*args)


def body(x, w):
    return ((x * w).exp() * x).exp()


def nested(x, w, use):
    return use(body, use(body, x, w, use_reentrant=False) * 0.01, w, use_reentrant=False)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients(reentrant: bool) -> None:
    found = []
    for torch, use in ((skimp, checkpoint), (oracle, plainly)):
        x = torch.tensor([0.1, 0.2], requires_grad=True)
        w = torch.tensor([0.3, 0.4], requires_grad=True)
        use(body, x, w, use_reentrant=reentrant).sum().backward()
        found.append([round(v, 5) for v in (*x.grad.tolist(), *w.grad.tolist())])
    assert found[0] == found[1]


def test_nested() -> None:
    found = []
    for torch, use in ((skimp, checkpoint), (oracle, plainly)):
        x = torch.tensor([0.1, 0.2], requires_grad=True)
        w = torch.tensor([0.3, 0.4], requires_grad=True)
        use(nested, x, w, use, use_reentrant=False).sum().backward()
        found.append([round(v, 5) for v in (*x.grad.tolist(), *w.grad.tolist())])
    assert found[0] == found[1]


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("middle", [False, True])
def test_nested_of_both_kinds(inner: bool, middle: bool) -> None:
    """What comes before the inner one has its gradient."""

    def run(torch, use):
        def wrapped(x, w):
            return use(body, (x * w).sin(), w, use_reentrant=inner).cos()

        def outer(x, w):
            return use(wrapped, x * x, w, use_reentrant=middle)

        x = torch.tensor([0.1, 0.2], requires_grad=True)
        w = torch.tensor([0.3, 0.4], requires_grad=True)
        use(outer, x, w, use_reentrant=False).sum().backward()
        return [round(v, 5) for v in (*x.grad.tolist(), *w.grad.tolist())]

    assert run(skimp, checkpoint) == run(oracle, plainly)


def same(q, k, v):
    return q * k if q is k and k is v else q - k + v


def test_arguments_that_are_one_tensor_are_one_again_in_nested_calls() -> None:
    def outer(x, use):
        y = x * 2
        return use(same, y, y, y, use_reentrant=False).exp()

    found = []
    for torch, use in ((skimp, checkpoint), (oracle, plainly)):
        x = torch.tensor([0.1, 0.2], requires_grad=True)
        use(outer, x, use, use_reentrant=False).sum().backward()
        found.append([round(v, 5) for v in x.grad.tolist()])
    assert found[0] == found[1]


def test_grad_and_second_backward() -> None:
    x = skimp.tensor([0.1, 0.2], requires_grad=True)
    y = checkpoint(body, x, x, use_reentrant=False).sum()
    (first,) = skimp.autograd.grad(y, x, retain_graph=True)
    y.backward()
    assert first.tolist() == x.grad.tolist()
    with pytest.raises(RuntimeError, match=r"is incompatible with \.grad\(\)"):
        skimp.autograd.grad(checkpoint(body, x, x, use_reentrant=True).sum(), x)


def test_early_stop() -> None:
    ran = []

    def f(x):
        y = x.exp()
        ran.append("half")
        y = y + 1
        ran.append("whole")
        return y

    x = skimp.ones(2, requires_grad=True)
    checkpoint(f, x, use_reentrant=False).sum().backward()
    assert ran == ["half", "whole"]
    with set_checkpoint_early_stop(False):
        y = checkpoint(f, x, use_reentrant=False).sum()
    y.backward()
    assert ran[2:] == ["half", "whole", "half", "whole"]


def test_keyword_arguments_and_contexts() -> None:
    x = skimp.ones(2, requires_grad=True)
    entered = []

    class Context:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            entered.append(self.name)

        def __exit__(self, *_: object) -> None:
            return None

    y = checkpoint(
        body,
        x,
        w=x * 2,
        use_reentrant=False,
        context_fn=lambda: (Context("forward"), Context("again")),
    )
    y.sum().backward()
    assert entered == ["forward", "again"]
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(body, x, x, use_reentrant=True, debug=True)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: w"):
        checkpoint(body, x, w=x, use_reentrant=True)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(body, x, x)


def changing(by: float):
    calls = []

    def f(x):
        calls.append(None)
        return (x * (1 + by * len(calls))).exp()

    return f


def test_other_values_pass_unless_checked() -> None:
    x = skimp.ones(2, requires_grad=True)
    checkpoint(changing(1), x, use_reentrant=False).sum().backward()
    checkpoint(changing(0), x, use_reentrant=False, check="values").sum().backward()
    with pytest.raises(CheckpointError, match="different values than during the forward pass"):
        checkpoint(changing(1), x, use_reentrant=False, check="values").sum().backward()


def test_other_numbers_and_shapes_of_tensors() -> None:
    calls = []

    def fewer(x):
        calls.append(None)
        return x.exp().exp() if len(calls) % 2 else x.exp()

    def shorter(x):
        calls.append(None)
        return (x if len(calls) % 2 else x[:1]).exp().sum()

    x = skimp.ones(2, requires_grad=True)
    with pytest.raises(CheckpointError, match="A different number of tensors was saved"):
        checkpoint(fewer, x, use_reentrant=False).sum().backward()
    calls.clear()
    with pytest.raises(
        CheckpointError, match="have different metadata than during the forward pass"
    ):
        checkpoint(shorter, x, use_reentrant=False).backward()
    calls.clear()
    checkpoint(shorter, x, use_reentrant=False, determinism_check="none").backward()


def test_input_modified_before_backward() -> None:
    x = skimp.ones(2, requires_grad=True)
    w = skimp.ones(2)
    y = checkpoint(body, x, w, use_reentrant=False)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_sequential() -> None:
    functions = [lambda x: x.exp(), lambda x: x * 0.1, lambda x: x.exp(), lambda x: x * x]
    found = []
    for segments in (1, 2, 4):
        x = skimp.ones(2, requires_grad=True)
        checkpoint_sequential(functions, segments, x, use_reentrant=False).sum().backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1] == found[2]


def test_memory_between_forward_and_backward() -> None:
    with skimp.config.using(defer="never"):
        x = skimp.ones(1000, requires_grad=True)
        before = host.allocated
        y = checkpoint(body, x, x, use_reentrant=False, preserve_rng_state=False)
        assert host.allocated - before == 4000  # the output; the three saved ones are not kept
        z = body(x, x)
        assert host.allocated - before == 3 * 4000
        del y, z


def test_without_gradients() -> None:
    with skimp.no_grad():
        assert not checkpoint(body, skimp.ones(2), skimp.ones(2), use_reentrant=False).requires_grad
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(body, skimp.ones(2), skimp.ones(2), use_reentrant=True)
