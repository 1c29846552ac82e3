"""A gradient that is asked for alone is the one made among all, and nothing else is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skimp
from skimp.nn import functional as F
from tests.support.op_samples import entered, function_of, registry, samples_of

ROWS = registry()


def _strided(value: Any) -> list[Any]:
    """The strided tensors with gradients in a value of containers."""
    if isinstance(value, skimp.Tensor):
        return [value] if value.requires_grad and value.layout is skimp.strided else []
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _strided(v)]
    return []


def _values(grad: Any) -> Any:
    return None if grad is None else grad.detach().resolve_conj().resolve_neg().to_dense().numpy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [name for name in ROWS if name[-1] != "_"])
def test_alone_and_among_all(op: str) -> None:
    for sample in samples_of(op, ROWS[op], count=3):
        made: dict[int, Any] = {}
        args = [entered(skimp, a, made) for a in sample.args]
        kwargs = {k: entered(skimp, a, made) for k, a in sample.kwargs.items()}
        leaves = _strided([*args, *kwargs.values()])
        if len(leaves) < 2 or "out" in kwargs:
            continue
        skimp.manual_seed(0)
        results = _strided([function_of(skimp, sample.op)(*args, **kwargs)])
        if not results:
            continue
        ones = [skimp.ones_like(t) for t in results]
        keep: Any = {"retain_graph": True, "allow_unused": True}
        grads = skimp.autograd.grad(results, leaves, ones, **keep)
        for leaf, wanted in zip(leaves, grads, strict=True):
            (found,) = skimp.autograd.grad(results, [leaf], ones, **keep)
            a, b = _values(found), _values(wanted)
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wanted", ["input", "weight", "bias"])
def test_a_convolution_makes_the_gradient_that_is_asked_for(wanted: str) -> None:
    """Input and weight have 256 KiB each; the other's gradient is made nowhere."""
    shapes = {"input": (4, 64, 16, 16), "weight": (64, 64, 4, 4), "bias": (64,)}
    given = {name: skimp.ones(*shape, requires_grad=True) for name, shape in shapes.items()}
    out = F.conv2d(**given)
    ones = skimp.ones_like(out)
    before = skimp.cuda.memory_allocated()
    skimp.cuda.reset_peak_memory_stats()
    (grad,) = skimp.autograd.grad(out, [given[wanted]], ones)
    more = skimp.cuda.max_memory_allocated() - before
    assert grad.nbytes <= more <= grad.nbytes + 4096
