"""Gradients reach a leaf as soon as it has received all of its own, before any other node runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch as oracle

import skimp
from skimp._engine.autograd import engine, leaves
from skimp._engine.memory.ledger import host


def order_of_hooks(torch: Any, seed: int) -> list[Any]:
    """A random program, twice, the first loss still alive: what its hooks see, in order."""
    told: list[Any] = []
    rng = random.Random(seed)
    values = [torch.full((2,), 0.5 + i, requires_grad=True) for i in range(3)]
    for i, leaf in enumerate(values):
        leaf.register_post_accumulate_grad_hook(
            lambda t, i=i: told.append((i, [round(g, 3) for g in t.grad.tolist()]))
        )
    losses = []
    for _ in range(2):
        tensors = list(values)
        for k in range(rng.randint(1, 8)):
            name = rng.choice(["add", "mul", "sub", "sin", "exp", "view"])
            a, b = rng.choice(tensors), rng.choice(tensors)
            made = a.view(2) if name == "view" else (a.sin() if name == "sin" else None)
            if made is None:
                made = (a * 0.1).exp() if name == "exp" else getattr(a, name)(b)
            made.register_hook(lambda g, k=k: told.append(f"node {k}"))
            tensors.append(made)
        roots = [t.sum() for t in rng.sample(tensors, 2)]
        how = rng.choice(["all", "some", "grad", "twice"])
        told.append(how)
        if how == "all":
            torch.autograd.backward(roots)
        elif how == "some":
            torch.autograd.backward(roots, inputs=rng.sample(values, 2))
        elif how == "twice":
            roots[0].backward(retain_graph=True)
            torch.autograd.backward([roots[0], values[0]], [None, torch.ones(2)])
        else:
            found = torch.autograd.grad(roots, rng.sample(tensors, 2), allow_unused=True)
            told.append([None if g is None else [round(x, 3) for x in g.tolist()] for g in found])
        losses.append(roots)
    return told


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_hooks_run_in_the_order_of_the_oracle(start: int) -> None:
    for seed in range(start, start + 100):
        assert order_of_hooks(skimp, seed) == order_of_hooks(oracle, seed), seed


def test_a_leaf_of_one_edge_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the graph walked for it: small programs pay nothing."""
    walks = []
    count = leaves.edges_to_leaves
    monkeypatch.setattr(engine, "edges_to_leaves", lambda *a: walks.append(1) or count(*a))
    a = skimp.ones(3, requires_grad=True)
    b = skimp.ones(3, requires_grad=True)
    loss = (a * b).exp().sum()
    loss.backward()
    loss = (a * b).exp().sum()  # the graph before goes with its name
    loss.backward()
    assert not walks
    (a * b).sum().backward()  # beside the graph that `loss` holds
    assert walks == [1]


def test_sparse_gradients_meet_at_a_leaf() -> None:
    """They have no storage of their own that the sum could be written over."""
    found = []
    for torch in (skimp, oracle):
        table = torch.ones(4, 2, requires_grad=True)
        ids = torch.tensor([1, 3, 1])
        looked_up = [torch.nn.functional.embedding(ids, table, sparse=True) for _ in range(3)]
        (looked_up[0] * 2 + looked_up[1] + looked_up[2].exp()).sum().backward()
        assert table.grad is not None
        assert table.grad.is_sparse
        found.append(table.grad.to_dense().tolist())
    assert found[0] == found[1]


def _steps(update: Callable[[Any], None]) -> list[int]:
    """The peak of each of three steps, above what there was before it."""
    weights = [skimp.ones(256, 256, requires_grad=True) for _ in range(8)]
    for w in weights:
        w.register_post_accumulate_grad_hook(update)
    x = skimp.ones(4, 256)
    peaks = []
    loss: Any = None
    for _ in range(3):
        new = x
        for w in weights:
            new = new @ w.t()
        new = new.sum()
        before = host.allocated
        skimp.memory.reset_peak_memory_stats()
        new.backward()
        peaks.append(skimp.memory.max_memory_allocated() - before)
        loss = new  # alive until the next step has run
    del loss
    return peaks


def test_the_optimizer_in_backward_holds_one_gradient_at_a_time() -> None:
    def update(w: Any) -> None:
        w.detach().sub_(w.grad, alpha=0.001)
        w.grad = None

    with skimp.config.using(defer="never"):
        peaks = _steps(update)
    size = 256 * 256 * 4
    assert peaks[0] == peaks[1] == peaks[2]
    assert peaks[0] <= 1.1 * size  # of 8


def test_without_hooks_all_gradients_stay() -> None:
    """What the test before measures is there to be saved."""
    with skimp.config.using(defer="never"):
        peaks = _steps(lambda w: None)
    assert peaks[0] > 7 * 256 * 256 * 4


@pytest.mark.parametrize("leaf", [True, False])
def test_a_leaf_that_is_a_view_made_under_no_grad_gets_no_gradient_once_its_base_was_written_to(
    leaf: bool,
) -> None:
    """Found by a random program: also where what was computed of it came before the write."""
    told = []
    for m in (oracle, skimp):
        x = m.ones(2, 1).requires_grad_()
        base = x.clone() if leaf else m.ones(2, 1)
        with m.no_grad():
            view = base.unbind(0)[0]
        view.requires_grad_()
        made = view.exp()
        base.add_(0.5 if leaf else x)
        with pytest.raises(RuntimeError, match="created in no_grad mode") as caught:
            made.sum().backward()
        told.append(str(caught.value).split(". Given")[0])
    assert told[1].startswith(told[0])


LEAVES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda lib: lib.ones(3, 4),
    "number": lambda lib: lib.ones(()),
    "empty": lambda lib: lib.ones(0, 3),
    "turned": lambda lib: lib.ones(4, 3).t(),
    "with a gap": lambda lib: lib.ones(4, 6)[:, ::2],
    "one column": lambda lib: lib.ones(4, 1),
    "one of many columns": lambda lib: lib.ones(4, 7)[:, :1],
    "strides of its own": lambda lib: lib.empty_strided((4, 1), (1, 7)).fill_(1),
}


@pytest.mark.parametrize("made", LEAVES.values(), ids=LEAVES)
def test_a_gradient_that_is_a_view_is_copied_as_the_leaf_lies(made: Callable[[Any], Any]) -> None:
    found = []
    for lib in (skimp, oracle):
        leaf, other = made(lib).requires_grad_(), made(lib).requires_grad_()
        (leaf + other).sum().backward()  # one number, spread, for both
        leaf.grad.add_(1)
        found.append([(t.grad.stride(), t.grad.tolist()) for t in (leaf, other)])
    assert found[0] == found[1]
