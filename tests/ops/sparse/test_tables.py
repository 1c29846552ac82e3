"""Sparse gradients of tables: optimizers, and where they meet."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.ops.sparse.test_sparse import both
from tests.support.samples import refused_with

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


# -- gradients of tables --------------------------------------------------------------------------

STEPS: dict[str, Any] = {
    "sgd": lambda lib, p: lib.optim.SGD(p, lr=0.1),
    "momentum": lambda lib, p: lib.optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda lib, p: lib.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "maximize": lambda lib, p: lib.optim.SGD(p, lr=0.1, maximize=True),
    "adagrad": lambda lib, p: lib.optim.Adagrad(p, lr=0.1),
    "sparse adam": lambda lib, p: lib.optim.SparseAdam(p, lr=0.1),
}


@pytest.mark.parametrize("case", STEPS)
def test_tables_learn(case: str) -> None:
    def run(lib: Any) -> Any:
        table = lib.nn.Embedding(6, 2, sparse=True, padding_idx=5)
        bag = lib.nn.EmbeddingBag(6, 2, sparse=True, mode="sum")
        with lib.no_grad():
            table.weight.copy_(lib.arange(12.0).view(6, 2).cos())
            bag.weight.copy_(lib.arange(12.0).view(6, 2).sin())
        parameters = [*table.parameters(), *bag.parameters()]
        optimizer = STEPS[case](lib, parameters)
        for rows in ([[1, 2], [2, 5]], [[0, 4], [4, 3]], [[1, 1], [1, 1]]):
            optimizer.zero_grad()
            x = lib.tensor(rows)
            (table(x).sum(1) * bag(x)).sin().sum().backward()
            optimizer.step()
        return [p.detach().tolist() for p in parameters] + [table.weight.grad.is_sparse]

    ours, theirs = both(run)
    assert ours[-1] == theirs[-1]
    np.testing.assert_allclose(ours[:-1], theirs[:-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("maximize", [False, True])
def test_few_rows_are_stepped_on_as_many_are(dtype: str, maximize: bool) -> None:
    """SparseAdam's step over small arrays has the general way's bits and versions."""

    def steps() -> Any:
        numbers = np.random.default_rng(0).standard_normal((9, 3))
        p = skimp.tensor(numbers, dtype=getattr(skimp, dtype), requires_grad=True)
        optimizer = skimp.optim.SparseAdam([p], lr=0.1, maximize=maximize)
        versions = []
        for rows in ([1, 2, 1], [8, 0, 4, 4], [3]):
            optimizer.zero_grad()
            skimp.nn.functional.embedding(skimp.tensor(rows), p, sparse=True).exp().sum().backward()
            optimizer.step()
            versions.append(p._version)
        kept = [p.detach(), *[v for v in optimizer.state[p].values() if skimp.is_tensor(v)]]
        return versions, [t.numpy().tobytes() for t in kept]

    with skimp.config.using(defer="never", small_below=0):
        want = steps()
    with skimp.config.using(defer="never"):
        assert steps() == want


def test_gradients_of_tables_meet() -> None:
    def run(lib: Any) -> Any:
        table = lib.nn.Embedding(5, 2, sparse=True)
        with lib.no_grad():
            table.weight.copy_(lib.arange(10.0).view(5, 2))
        x = lib.tensor([1, 3, 3])
        (table(x) * table(x + 1)).sum().backward()
        once = table.weight.grad
        first = once.is_sparse, once._nnz(), once.to_dense().tolist()
        table(x).sum().backward()
        second = table.weight.grad.is_sparse, table.weight.grad.to_dense().tolist()
        (table(x).sum() + table.weight.sum()).backward()
        return first, second, table.weight.grad.to_dense().tolist()

    ours, theirs = both(run)
    assert ours == theirs


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adadelta", "Rprop", "NAdam"])
def test_other_optimizers_refuse(name: str) -> None:
    def run(lib: Any) -> Any:
        table = lib.nn.Embedding(5, 2, sparse=True)
        table(lib.tensor([1])).sum().backward()
        return refused_with(getattr(lib.optim, name)(table.parameters()).step)

    ours, theirs = both(run)
    assert ours == theirs


def test_sparse_adam_refuses() -> None:
    p = skimp.ones(2, requires_grad=True)
    p.sum().backward()
    with pytest.raises(RuntimeError, match="dense gradients"):
        skimp.optim.SparseAdam([p]).step()
    with pytest.raises(ValueError, match="epsilon"):
        skimp.optim.SparseAdam([p], eps=0)


@pytest.mark.parametrize("hooks", [False, True])
def test_a_custom_function_keeps_a_sparse_tensor(hooks: bool) -> None:
    """As the attention of graph nets is often written: a sparse matrix made in forward."""

    def run(t: Any) -> Any:
        class Product(t.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
            @staticmethod
            def forward(ctx: Any, at: Any, values: Any, shape: Any, x: Any) -> Any:
                matrix = t.sparse_coo_tensor(at, values, shape)
                ctx.save_for_backward(matrix, x)
                return matrix @ x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                matrix, x = ctx.saved_tensors
                i, j = matrix._indices()
                return None, (g @ x.t())[i, j], None, matrix.t() @ g

        at = t.tensor([[0, 1, 1], [1, 0, 2]])
        values = t.tensor([1.0, -2.0, 3.0], requires_grad=True)
        x = t.arange(6.0).reshape(3, 2).requires_grad_()
        with (
            t.autograd.graph.saved_tensors_hooks(lambda v: v * 2, lambda v: v / 2)
            if hooks and t is skimp  # PyTorch hands its hooks the sparse tensor, we the values
            else contextlib.nullcontext()
        ):
            out = Product.apply(at, values, (2, 3), x)
        (out**2).sum().backward()
        return out.tolist(), values.grad.tolist(), x.grad.tolist()

    assert run(skimp) == run(torch)


def test_entries_that_changed_since_they_were_saved_are_refused() -> None:
    class Product(skimp.autograd.Function):
        @staticmethod
        def forward(ctx: Any, matrix: Any, x: Any) -> Any:
            ctx.save_for_backward(matrix)
            return matrix @ x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None, ctx.saved_tensors[0].t() @ g

    matrix = skimp.eye(2).to_sparse()
    out = Product.apply(matrix, skimp.ones(2, 2, requires_grad=True))
    matrix._values().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_table_of_bags_keeps_what_pytorch_keeps(mode: str) -> None:
    """Not the bag of each index."""

    def run(lib: Any) -> tuple[list[Any], int]:
        table = (lib.arange(40.0).view(10, 4).sin() * 3).requires_grad_()
        x = lib.arange(20000) % 10
        offsets = lib.arange(0, 20000, 1000)
        before = skimp.memory.memory_allocated()
        total = lib.nn.functional.embedding_bag(x, table, offsets, mode=mode, sparse=True)
        kept = skimp.memory.memory_allocated() - before
        (total.sin() * lib.arange(80.0).view(20, 4)).sum().backward()
        return table.grad.to_dense().tolist(), kept

    ours, kept = run(skimp)
    theirs, _ = run(torch)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert kept < 8 * 20000
