"""What a graph still holds when backward has run: nothing, and so it runs once, as in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import skimp
import skimp.nn.functional as F
from skimp._engine.autograd.saved import nodes
from skimp._engine.autograd.saving import SPECIAL
from skimp._engine.memory.ledger import host
from tests.support.op_samples import Sample, compared, tensors_of

KEEPS_LESS = (
    "PyTorch keeps the input, which the gradient does not need: here nothing is to be freed"
)
BY_OTHERS = "made of other ops here (there), which keep a tensor (which keep none)"

# op -> why a second backward of it does otherwise than PyTorch's
OTHERWISE = {
    "complex": KEEPS_LESS,
    "div": KEEPS_LESS,  # with a rounding mode
    "fft.fft": KEEPS_LESS,
    "fft.ifft": KEEPS_LESS,
    "fft.ihfft": KEEPS_LESS,
    "fft.ihfft2": KEEPS_LESS,
    "fft.ihfftn": KEEPS_LESS,
    "fft.rfft": KEEPS_LESS,
    "fft.rfft2": KEEPS_LESS,
    "fft.rfftn": KEEPS_LESS,
    "stft": KEEPS_LESS,
    "gradient": BY_OTHERS,
    "narrow": "the start may be a tensor, and is kept as one",
    "nn.functional.adaptive_avg_pool1d": BY_OTHERS,
    "nn.functional.adaptive_avg_pool3d": BY_OTHERS,
    "nn.functional.interpolate": BY_OTHERS,
    "nn.functional.linear_cross_entropy": BY_OTHERS,
    "nn.functional.upsample_nearest": BY_OTHERS,
    "linalg.eig": "the oracle refuses the gradient of what depends on the vectors' phases",
}


def twice(library: Any, sample: Sample) -> str:
    """What a second backward does."""
    outs = [t for t in tensors_of(sample.call(library)) if t.requires_grad]
    grads = [library.ones_like(t) for t in outs]
    library.autograd.backward(outs, grads)
    if library is skimp:
        for node in nodes(outs):
            for value in node._skimp_saved or ():
                assert not isinstance(value, skimp.Tensor), (sample.op, node)
                assert type(value) not in SPECIAL, (sample.op, node)
    try:
        library.autograd.backward(outs, grads)
    except RuntimeError as e:
        return str(e)[:60]
    return "works"


def test_a_second_backward_works_where_the_oracle_s_does() -> None:
    """Over the oracle's own samples; and after the first, no node holds a tensor."""
    seen, unlike = compared(2, twice)
    assert len(seen) > 350
    assert unlike <= set(OTHERWISE)


def _mask() -> Any:
    return skimp.zeros(100, 100) > 0


def _index() -> Any:
    return skimp.zeros(100, 100, dtype=skimp.int64)


LOSSES: dict[str, Callable[[Any], Any]] = {
    "masked_fill": lambda x: x.masked_fill(_mask(), 0.0),
    "where": lambda x: skimp.where(_mask(), x, 0.0),
    "dropout": lambda x: F.dropout(x, 0.5),
    "gather": lambda x: x.gather(1, _index()),
    "scatter": lambda x: x.scatter(1, _index(), 0.0),
    "index_select": lambda x: x.index_select(0, _index()[0]),
    "embedding": lambda x: F.embedding(_index(), x),
    "index": lambda x: x[_index()],
    "take": lambda x: x.take(_index()),
    "masked_select": lambda x: x.masked_select(~_mask()),
    "nll_loss": lambda x: F.nll_loss(x, _index()[0]),
    "max_pool": lambda x: F.max_pool2d(x[None, None], 2),
    "index_add": lambda x: x.index_add(0, _index()[0], x),
    "masked_scatter": lambda x: x.masked_scatter(_mask(), x),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_a_program_collects_hold_their_own_bytes(name: str) -> None:
    x = skimp.ones(100, 100, requires_grad=True)
    x.grad = skimp.zeros(100, 100)
    losses = []
    before = host.allocated
    for _ in range(3):
        loss = LOSSES[name](x).sum()
        peak = host.allocated - before
        loss.backward()
        losses.append(loss)
        del loss
    assert peak > 1000  # a mask, an index: forward has kept it
    assert host.allocated - before == 3 * 4


def test_what_kept_numbers_and_shapes_only_runs_again() -> None:
    x = skimp.ones(4, requires_grad=True)
    y = (x + 1).view(2, 2).narrow(0, 0, 1).sum(1)
    for _ in range(3):
        y.backward(skimp.ones(1))
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 0, 0]


def test_a_saved_mask_is_not_freed_while_the_graph_is_retained() -> None:
    x = skimp.ones(4, requires_grad=True)
    y = x.masked_fill(x > 2, 0.0).sum()
    y.backward(retain_graph=True)
    y.backward()
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="a second time"):
        y.backward()
