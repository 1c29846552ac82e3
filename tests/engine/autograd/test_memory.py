"""What forward and backward keep, to the byte."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import skimp
from skimp._engine.memory.ledger import host

N = 1000
BYTES = 4 * N


@pytest.fixture(autouse=True)
def eager() -> Any:
    with skimp.config.using(defer="never"):
        yield


def leaf() -> Any:
    return skimp.ones(N, requires_grad=True)


class Since:
    """Bytes allocated since it was made."""

    def __init__(self) -> None:
        self.before = host.allocated

    @property
    def blocks(self) -> float:
        return (host.allocated - self.before) / BYTES


def test_formulas_that_read_nothing_keep_nothing() -> None:
    x = leaf()
    since = Since()
    y = (x + 1 - x).neg().view(10, -1).t()
    assert since.blocks == 1
    del y


def test_a_result_that_is_kept_is_not_kept_twice() -> None:
    x = leaf()
    since = Since()
    y = x.exp()
    assert since.blocks == 1
    del y
    assert since.blocks == 0


def test_del_of_intermediates_frees_what_the_graph_does_not_need() -> None:
    x = leaf()
    since = Since()
    a = x * 2
    b = a + 1
    c = b.exp()
    assert since.blocks == 3
    del a, b
    assert since.blocks == 1
    del c
    assert since.blocks == 0


def test_nothing_needs_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf()
        since = Since()
        y = x.exp() * 2
        y.mul_(x)
        v = y[:10]
        v.exp_()
        z = (y * y).sum()
        z.backward()
        node = weakref.ref(z.grad_fn)
        del y, v, z
        assert node() is None
        assert since.blocks == 1  # what is left is the gradient
        x.grad = None
        assert since.blocks == 0
        del x
        assert since.blocks == -1
    finally:
        gc.enable()


def test_backward_frees_what_was_saved() -> None:
    x = leaf()
    since = Since()
    z = x.exp().exp().exp().sum()
    assert 3 < since.blocks < 3.01
    z.backward()
    assert 1 < since.blocks < 1.01
    assert x.grad is not None


def test_saved_blocks_go_while_backward_passes() -> None:
    """The peak of backward is one block above that of forward: a new gradient beside the one it is
    made of.
    """
    x = leaf()
    y = x
    for _ in range(10):
        y = (y * 0.1).exp()
    z = y.sum()
    del y
    before = host.allocated
    skimp.memory.reset_peak_memory_stats()
    z.backward()
    assert skimp.memory.max_memory_allocated() - before < 3.1 * BYTES
    del z


def test_retained_graph_keeps_everything() -> None:
    x = leaf()
    z = x.exp().exp().sum()
    since = Since()
    z.backward(retain_graph=True)
    assert since.blocks == 1
    z.backward()
    assert since.blocks == -1


def test_a_gradient_that_nobody_else_reads_is_taken() -> None:
    x = leaf()
    g = skimp.ones(N)
    since = Since()
    skimp.memory.reset_peak_memory_stats()
    before = host.allocated
    (x * 2).backward(g)
    assert since.blocks == 1
    assert skimp.memory.max_memory_allocated() - before <= 2 * BYTES + 64
    x.grad = None
    x.backward(g)
    assert x.grad is not g
    assert not skimp.shares_memory(x.grad, g)


@pytest.mark.parametrize("how", ["view", "slice", "both"])
def test_a_gradient_that_others_read_is_copied(how: str) -> None:
    x, w = leaf(), leaf()
    if how == "view":
        x.view(10, -1).backward(g := skimp.ones(10, N // 10))
        assert not skimp.shares_memory(x.grad, g)
    elif how == "slice":
        skimp.cat([x, w]).sum().backward()
        assert not skimp.shares_memory(x.grad, w.grad)
        assert len(x.grad._storage) == BYTES
    else:
        (x + w).exp().sum().backward()
        assert not skimp.shares_memory(x.grad, w.grad)
        x.grad.zero_()
        assert w.grad.sum().item() > 0


def test_gradients_accumulate_in_place() -> None:
    x = leaf()
    (x * 2).sum().backward()
    where = x.grad.data_ptr()
    since = Since()
    (x * 3).sum().backward()
    assert x.grad.data_ptr() == where
    assert since.blocks == 0
    assert x.grad.tolist() == [5.0] * N


def test_sum_of_many_gradients_takes_one_block() -> None:
    x = leaf()
    z = sum([(x * float(k)).sum() for k in range(20)])
    before = host.allocated
    skimp.memory.reset_peak_memory_stats()
    z.backward()
    assert skimp.memory.max_memory_allocated() - before < 2.2 * BYTES
    assert x.grad[0].item() == 190


def test_the_layout_of_a_gradient_is_the_leafs() -> None:
    x = skimp.ones(20, 50).t().detach().requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.stride() == x.stride()
    y = skimp.ones(20, 50).requires_grad_()
    y.t().backward(skimp.ones(50, 20))
    assert y.grad.stride() == (50, 1)


def test_writes_into_a_buffer_do_not_copy_it_for_each() -> None:
    x = skimp.ones(10, requires_grad=True)
    b = skimp.zeros(10, N)
    for i in range(10):
        b[i] = x[i]
    z = b.sum()
    before = host.allocated
    skimp.memory.reset_peak_memory_stats()
    z.backward()
    assert skimp.memory.max_memory_allocated() - before < 3.1 * 10 * BYTES
    assert x.grad.tolist() == [float(N)] * 10
    del z


@pytest.mark.parametrize("write", ["beside", "in place"])
def test_a_chain_of_deferred_ops_and_its_gradient_take_one_block(write: str) -> None:
    """Forward and backward of n pointwise ops on a large tensor: the peak does not grow with n."""
    peaks = []
    with skimp.config.using(defer="auto"):
        for n in (4, 16, 64):
            x = skimp.ones(1 << 20, requires_grad=True)
            before = host.allocated
            skimp.memory.reset_peak_memory_stats()
            y = x
            for _ in range(n):
                y = (y * 0.3).exp() if write == "beside" else (y * 0.5).tanh_()
            z = y.sum()
            del y
            z.backward()
            del z
            assert 0 < x.grad[0].item() < 1
            peaks.append(skimp.memory.max_memory_allocated() - before)
            x.grad = None
            del x
    assert peaks[0] == peaks[1] == peaks[2]
    assert peaks[0] < (1 << 22) * 1.1


def peak_of_a_step(count: int, in_backward: bool) -> int:
    """Bytes above the parameters, momentum and graph, of a backward that ends in a step."""
    weights = [leaf() for _ in range(count)]
    optimizers = {w: skimp.optim.SGD([w], lr=0.1, momentum=0.9) for w in weights}

    def step(w: Any) -> None:
        optimizers[w].step()
        optimizers[w].zero_grad()

    for w in weights:
        w.grad = skimp.zeros(N)
        step(w)  # which makes the momentum
        if in_backward:
            w.register_post_accumulate_grad_hook(step)
    loss = sum([(w * w).sum() for w in weights])
    gc.collect()  # hooks and the weights of an earlier call hold each other
    before = host.allocated
    skimp.memory.reset_peak_memory_stats()
    loss.backward()
    if not in_backward:
        for w in weights:
            step(w)
    assert all([w[0].item() == pytest.approx(0.8) for w in weights])
    return skimp.memory.max_memory_allocated() - before


def test_optimizers_in_backward_need_one_gradient_at_a_time() -> None:
    few, many = peak_of_a_step(4, True), peak_of_a_step(12, True)
    assert many == few < 3.1 * BYTES
    assert peak_of_a_step(12, False) - peak_of_a_step(4, False) == 8 * BYTES


def test_a_base_forgets_the_views_that_are_gone() -> None:
    """A parameter that is cut in every step has no more to remember than views that are alive."""
    cuts: list[Callable[[Any], Any]] = [
        lambda w: w.unbind(),
        lambda w: w.chunk(2, 1),
        lambda w: w[1:],
        lambda w: w[0],
        lambda w: w.view(skimp.int32),
        lambda w: w.squeeze(0),
        lambda w: w.expand(2, 4, 4),
    ]
    for grad in (True, False):
        w = skimp.ones(4, 4, requires_grad=True)
        for cut in cuts:
            with skimp.set_grad_enabled(grad):
                for _ in range(300):
                    cut(w)
            assert len(w._skimp_views or ()) <= 128, cut
