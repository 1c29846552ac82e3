"""Formulas of derivatives take gradients under vmap: nothing runs a node sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import skimp
from tests.support.op_samples import samples
from tests.support.samples import outcome


def _leaves(outputs: list[Any]) -> list[Any]:
    seen: set[Any] = set()
    todo = [t.grad_fn for t in outputs]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [n for n, _ in node.next_functions]
    return [n.variable for n in seen if hasattr(n, "variable")]


def _graphs() -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Outputs and inputs of each op's first sample."""
    for sample in samples(1):
        result = outcome(sample.call, skimp)
        found = result if isinstance(result, (tuple, list)) else (result,)
        outputs = [t for t in found if isinstance(t, skimp.Tensor) and t.requires_grad]
        outputs = [t for t in outputs if not t.is_sparse]
        leaves = _leaves(outputs)
        if leaves:
            yield sample.op, outputs, leaves


def test_gradients_of_a_batch_are_those_of_its_rows() -> None:
    count = 0
    for name, outputs, leaves in _graphs():
        skimp.manual_seed(count)
        batches = [skimp.randn(2, *t.shape, dtype=t.dtype) for t in outputs]

        def grad(given: list[Any], outputs=outputs, leaves=leaves, **more: Any) -> Any:
            return skimp.autograd.grad(
                outputs, leaves, given, retain_graph=True, allow_unused=True, **more
            )

        batched = grad(batches, is_grads_batched=True)
        for i in range(2):
            for whole, row in zip(batched, grad([b[i].clone() for b in batches]), strict=True):
                assert (whole is None) is (row is None), name
                assert row is None or whole[i].allclose(row.to_dense(), equal_nan=True), name
        count += 1
    assert count > 450
