"""What is made again has the bits that it had, or is not made again."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import evictable, recipes, setting, spending
from skimp._engine.budget.evictable import Evictable
from skimp._engine.budget.statistics import counts
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, held, is_away, numbers
from tests.support.running import default_mode

# what is noted, and what must be there at once, follows the mode
pytestmark = [default_mode, pytest.mark.usefixtures("obeyed")]

F = torch.nn.functional


def drop(t: Any) -> bool:
    """Take the bytes of a tensor away because they can be made again."""
    s = t._storage
    assert isinstance(s, Evictable)
    if s.deferred is not None:
        s.materialize()
    budget: Any = host.budget
    order = budget._order(s)
    if order is None:
        return False
    needs = [one for _, there in order for one in there]
    evictable.depends(s, needs)  # first, as a budget does it
    if not evictable.evict(s, None, needs):
        return False
    assert is_away(t)
    return True


def lstm_cell(x: Any, w: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.LSTMCell(512, 512)(x, (w, w + 1))[0]


OPS = {
    "product": lambda x, w: x @ w,
    "linear": lambda x, w: F.linear(x, w),
    "linear with bias": lambda x, w: F.linear(x, w, w[0].clone()),
    "linear, twice": lambda x, w: F.linear(F.linear(x, w, w[0].clone()), w, w[1].clone()),
    "addmm": lambda x, w: torch.addmm(F.linear(x, w, w[0].clone()), x, w, beta=2),
    "baddbmm": lambda x, w: torch.baddbmm(x[None] * 2, x[None], w[None], alpha=0.5)[0],
    "lstm cell": lambda x, w: lstm_cell(x, w),
    "pointwise": lambda x, w: (x * 2).exp() + 1,
    "softmax": lambda x, w: x.softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, (512,)),
    "cumsum": lambda x, w: x.cumsum(0),
    "sort": lambda x, w: x.sort(1)[0],
    "cat": lambda x, w: torch.cat([x, w], 1),
    "copy": lambda x, w: x.t().contiguous(),
    "index": lambda x, w: x[torch.arange(511, -1, -1)],
    "where": lambda x, w: torch.where(x > 0.5, x, w),
    "pool": lambda x, w: F.avg_pool2d(x[None, None], 2, 1),
    "convolution": lambda x, w: F.conv1d(x[None], w[:, :, None]),
    "batch_norm": lambda x, w: F.batch_norm(x, torch.zeros(512), torch.ones(512), training=True),
    "outer": lambda x, w: torch.outer(x[0], w[:, 0]),
    "chain": lambda x, w: F.gelu((x @ w).softmax(-1) @ w) * 3,
    "dropped": lambda x, w: F.dropout(x, 0.5),
}


@pytest.mark.parametrize("op", OPS.values(), ids=list(OPS))
def test_ops_are_made_again(op: Any) -> None:
    x, w = numbers(0).view(512, 512), numbers(1).view(512, 512)
    y = op(x, w)
    before = y._storage.flat().tobytes()
    assert drop(y)
    assert y._storage.flat().tobytes() == before
    assert not is_away(y)
    assert y._version == 0


def test_a_chain_is_made_again_from_where_bytes_are() -> None:
    """What the program has dropped in between is no longer anywhere; nothing recurses."""
    x, w = numbers(0).view(512, 512), numbers(1).view(512, 512) / 256
    h = x
    for _ in range(40):
        h = h @ w
    want = h._storage.flat().tobytes()
    counts.reset()
    assert drop(h)
    assert h._storage.flat().tobytes() == want
    assert {(one.way, one.op) for one in counts.again} == {("made", "matmul")}
    assert sum([one.times for one in counts.again]) == 40
    assert any([one.filename == __file__ for one in counts.again])


def test_a_chain_of_what_is_alive_goes_and_comes_within_the_budget() -> None:
    x, w = numbers(0).view(512, 512), numbers(1).view(512, 512) / 256
    steps = [x @ w]
    for _ in range(15):
        steps.append(steps[-1] @ w)
    want = [t._storage.flat().tobytes() for t in steps]
    torch.memory.reset_peak_memory_stats()
    with torch.memory.budget(held() - 8 * MIB, spill=False):
        bound = host.bound
        assert sum(map(is_away, steps)) >= 8
        torch.memory.reset_peak_memory_stats()
        for t, bits in reversed(list(zip(steps, want, strict=True))):
            assert t._storage.flat().tobytes() == bits
        assert bound is not None
        assert host.peak <= bound


def test_what_a_recipe_reads_lives_as_long_as_it_is_needed() -> None:
    x, w = numbers(0).view(512, 512), numbers(1).view(512, 512)
    y = x @ w
    want = y._storage.flat().tobytes()
    assert drop(y)
    before = host.allocated
    del x, w
    gc.collect()
    assert host.allocated == before
    assert y._storage.flat().tobytes() == want
    gc.collect()
    assert host.allocated == before - MIB  # two went, one came


def test_a_source_that_got_its_recipe_later_may_die() -> None:
    x = numbers(0).view(512, 512) @ numbers(1).view(512, 512)
    m = x.view(65536, 4) * 2
    y = m.mean(1)
    want = y._storage.flat().tobytes()
    m._storage.materialize()
    (source,) = y._storage.recipe[0].sources
    source.origin = None  # so it is where what `m` reads was away when its reader was noted
    assert drop(m)
    assert drop(y)
    del x, m
    gc.collect()
    assert y._storage.flat().tobytes() == want


def test_what_is_written_to_is_made_first() -> None:
    for write in (
        lambda t: t.add_(1),
        lambda t: t.data.add_(1),
        lambda t: t.detach()[3:5].zero_(),
        lambda t: t.numpy(),
        lambda t: t.copy_(numbers(5).view(512, 512)),
        lambda t: t.untyped_storage().fill_(0),
    ):
        x, w = numbers(0).view(512, 512), numbers(1).view(512, 512)
        y = x @ w
        want = y._storage.flat().tobytes()
        assert drop(y)
        write(x)
        assert not is_away(y)
        assert y._storage.flat().tobytes() == want
        assert not drop(y)  # from what is not there any more


WRITES = {
    "pointwise": lambda y, x: y.add_(1),
    "of itself": lambda y, x: y.mul_(y),
    "a view": lambda y, x: y[3:100, ::2].relu_(),
    "a product": lambda y, x: y.addmm_(x, x),
    "rows": lambda y, x: y.index_add_(0, torch.arange(0, 512, 2), x[:256]),
    "a copy": lambda y, x: y.copy_(x.t()),
    "a mask": lambda y, x: y.masked_fill_(x > 0.5, 3),
    "numbers": lambda y, x: y.zero_(),
    "sorted": lambda y, x: y[:, :7].cumsum_(1),
    "twice": lambda y, x: y.relu_().add_(x),
    "a function in place": lambda y, x: F.silu(y, inplace=True),
    "one by position": lambda y, x: F.hardswish(y, True),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_result_that_was_written_is_made_again_with_the_write(write: Any) -> None:
    x = numbers(0).view(512, 512) - 0.5
    w = numbers(1).view(512, 512)
    y = x @ w
    y._storage.flat()
    write(y, x)
    want, older = y._storage.flat().tobytes(), y._version
    assert drop(y)
    z = y @ x  # reads it
    assert y._storage.flat().tobytes() == want
    assert y._version == older
    again = z._storage.flat().tobytes()
    y.add_(1)
    assert drop(z)  # though what it read was written to since
    assert z._storage.flat().tobytes() == again
    x.add_(1)  # makes what is away first
    assert z._storage.flat().tobytes() == again


@pytest.mark.parametrize("write", [F.relu_, F.leaky_relu_, lambda y: F.silu(y, inplace=True)])
def test_a_result_that_waits_as_it_is_written_is_made_again_with_the_write(write: Any) -> None:
    """The expression of a group_norm, which nothing is computed over in one pass."""
    x = numbers(0).view(4, 16, 64, 64)
    y = F.group_norm(x, 4)
    write(y)
    want = y._storage.flat().tobytes()
    assert drop(y)
    assert y._storage.flat().tobytes() == want


def test_what_is_written_often_or_at_random_is_not_made_again() -> None:
    x = numbers(0).view(512, 512)
    y = x @ x
    for _ in range(9):
        y.add_(1)
    assert not drop(y)
    y = x @ x
    F.dropout(y, 0.5, inplace=True)
    want = y._storage.flat().tobytes()
    drop(y)
    assert y._storage.flat().tobytes() == want


UNSET = {
    "empty_like": lambda x: torch.empty_like(x),
    "a part of it written": lambda x: torch.empty_like(x).view(2, -1)[0].zero_(),
    "resize_": lambda x: x[:5].clone().resize_(len(x)),
    "resize_as_": lambda x: (x[:5] + 1).resize_as_(x),
}


@pytest.mark.parametrize("make", UNSET.values(), ids=UNSET)
def test_what_nobody_has_written_stays_as_it_is(make: Any) -> None:
    """Made again it would be other bytes, which a program may look at twice."""
    s = make(numbers(0))._storage
    assert getattr(s, "recipe", None) is None  # it may be one that no budget knows


def test_what_was_computed_straight_into_a_tensor_is_not_made_again_from_itself() -> None:
    """The source of `copy_` reads its target afterwards: a recipe by that copy has no end."""
    x, w = numbers(0).view(512, 512), numbers(1).view(512, 512)
    y = x @ w
    y._storage.flat()
    source = x * 2
    y.copy_(source)
    assert source._storage.deferred is not None
    assert not drop(y)
    assert (y == x * 2).all()
    assert (source == y).all()


def test_what_read_a_tensor_before_another_was_computed_straight_into_it() -> None:
    for write in (
        lambda x, w: x.copy_(w * 2),
        lambda x, w: x[3:5].copy_(w[3:5] * 2),
        lambda x, w: x.data.copy_(w.exp()),
        lambda x, w: x.mul_(w),
        lambda x, w: x.uniform_(),
    ):
        x, w = numbers(0).view(512, 512).clone(), numbers(1).view(512, 512)
        x._storage.flat()
        waiting = x + 1
        assert waiting._storage.deferred is not None
        write(x, w)
        drop(waiting)
        assert (waiting == numbers(0).view(512, 512) + 1).all()


def test_a_deferred_tensor_that_was_made_for_another_is_replaced() -> None:
    """What needs the bytes of before has them made; the expression is another from then on."""
    x = numbers(0).view(512, 512)
    one, other = x - 0.5, torch.relu(x)
    s: Any = one._storage
    assert other._storage.deferred is not None
    s._about_to_change = s.materialize
    s.replace(other._storage.deferred)
    assert s.block is None
    assert s.flat().tobytes() == torch.relu(x)._storage.flat().tobytes()
    assert s.nbytes == MIB


def test_what_outsiders_write_to_is_no_source() -> None:
    array = np.ones((512, 512), np.float32)
    assert not drop(torch.from_numpy(array) @ numbers(1).view(512, 512))


def test_random_numbers_are_drawn_again_from_the_state_that_was_noted() -> None:
    torch.manual_seed(5)
    mask = torch.empty(1024, 1024).bernoulli_(0.3)
    want, after = mask._storage.flat().tobytes(), torch.rand(4).tolist()
    torch.manual_seed(5)
    mask = torch.empty(1024, 1024).bernoulli_(0.3)
    assert drop(mask)
    assert mask._storage.flat().tobytes() == want
    assert torch.rand(4).tolist() == after  # the stream goes on where it was


DRAWS = {
    "normal_": lambda t: t.normal_(),
    "normal_ of numbers": lambda t: t.normal_(1, std=0.5),
    "uniform_": lambda t: t.uniform_(-1, 1),
    "random_": lambda t: t.random_(7),
    "exponential_": lambda t: t.exponential_(lambd=2),
    "kaiming_uniform_": lambda t: torch.nn.init.kaiming_uniform_(t, a=5**0.5),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_what_fills_a_tensor_with_random_numbers_does_so_again(draw: Any) -> None:
    torch.manual_seed(3)
    torch.randn(17)  # an odd number, of which the generator keeps the other one of a pair
    t = draw(torch.empty(512, 512))
    want, after = bytes(t._storage.flat()), torch.randn(3).tolist()
    assert drop(t)
    torch.manual_seed(3)
    torch.randn(17)
    draw(torch.empty(512, 512))
    assert t._storage.flat().tobytes() == want
    assert torch.randn(3).tolist() == after


def test_numbers_of_a_stream_of_the_programs_own_are_not_drawn_again() -> None:
    assert not drop(torch.empty(512, 512).normal_(generator=torch.Generator()))


def test_recipes_of_a_long_program_do_not_pile_up() -> None:
    x, w = numbers(0).view(512, 512), numbers(1).view(512, 512) / 256
    for _ in range(recipes.DEEPEST + 50):
        x = x @ w
    depth = x._storage.recipe[0].depth
    assert depth <= recipes.DEEPEST + 1


def test_the_body_of_an_op_that_updates_statistics_is_not_run_twice() -> None:
    norm = torch.nn.BatchNorm1d(512)
    x = numbers(0).view(512, 512)
    y = norm(x)
    want, mean = y.detach()._storage.flat().tobytes(), norm.running_mean.clone()
    drop(y)
    assert y._storage.flat().tobytes() == want
    assert (norm.running_mean == mean).all()
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("kind", ["BatchNorm1d", "BatchNorm2d", "InstanceNorm2d"])
def test_statistics_that_no_budget_takes_are_not_updated_twice(kind: str) -> None:
    """In the first call too, before which the budget has not met them."""
    shape = (512, 64) if kind == "BatchNorm1d" else (8, 64, 8, 8)
    setting.set_budget(None)
    with torch.memory.budget(host.allocated + (16 << 20), spill=False):
        budget: Any = host.budget
        norm: Any = getattr(torch.nn, kind)(64, track_running_stats=True)
        x = torch.randn(shape).requires_grad_()
        y = norm(x)
        y.sum().item()
        mean, var = norm.running_mean.clone(), norm.running_var.clone()
        budget._evict_all()
        y.square().sum().backward()
        assert torch.equal(norm.running_mean, mean)
        assert torch.equal(norm.running_var, var)


def test_a_source_knows_all_that_may_be_made_from_it() -> None:
    """However many there are: each is made before the source changes."""
    x = numbers(0)
    results = []
    for i in range(70):
        y = x + i
        drop(y)
        results.append(y)
    x.zero_()
    for i, y in enumerate(results):
        assert np.array_equal(y.numpy(), numbers(0).numpy() + np.float32(i))


def test_parts_below_a_sum_have_their_places_when_they_are_made_again() -> None:
    """x * a + b, deferred, over two numbers for each channel: neither is taken for the other."""
    with torch.config.using(defer="always"):
        x = numbers(0).view(512, 512)
        want = torch.nn.functional.batch_norm(x, None, None, training=True).numpy()
        for _ in range(16):  # sets have another order each time
            budget = spending.Spending(host.allocated + 8 * MIB, True, None, True, least=1)
            try:
                setting.obey(budget)
                y = torch.nn.functional.batch_norm(x, None, None, training=True)
                assert np.array_equal(y.detach().clone().numpy(), want)
            finally:
                setting.obey(None)


def graph(x: Any, net: Any) -> Any:
    return net(x).square().mean()


PROGRAMS = {
    "double backward": lambda x, net: torch.autograd.grad(
        torch.autograd.grad(graph(x, net), x, create_graph=True)[0].square().sum(), x
    )[0],
    "retain_graph": lambda x, net: (
        (loss := graph(x, net)).backward(retain_graph=True), loss.backward(), x.grad)[2],
    "hooks": lambda x, net: (
        net[0].register_full_backward_hook(lambda m, a, b: (a[0] * 2,)),
        graph(x, net).backward(), x.grad)[2],
    "checkpoint": lambda x, net: (_checkpointed(x, net).backward(), x.grad)[1],
    "autocast": lambda x, net: (_autocast(x, net).backward(), x.grad)[1],
    "in place": lambda x, net: (
        graph(x.clone().mul_(2).relu_(), net).backward(), x.grad)[1],
    "saved hooks": lambda x, net: (_hooked(x, net).backward(), x.grad)[1],
}  # fmt: skip


def _checkpointed(x: Any, net: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(graph, x, net, use_reentrant=False)


def _autocast(x: Any, net: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return graph(x, net)


def _hooked(x: Any, net: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t * 1):
        return graph(x, net)


def test_calls_under_autocast_are_made_again() -> None:
    """As they were cast, outside the region too, and with the same dropout."""

    def trained() -> list[bytes]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            *[torch.nn.Sequential(
                torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Dropout(0.1),
                torch.nn.Linear(128, 64), torch.nn.LayerNorm(64),
            ) for _ in range(6)]
        )  # fmt: skip
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(torch.randn(1024, 64)).float().square().mean()
        loss.backward()
        return [bytes(p.grad.numpy().data) for p in net.parameters()]

    setting.set_budget(None)
    gc.collect()
    base = host.allocated
    torch.memory.reset_peak_memory_stats()
    want = trained()
    peak = host.peak - base
    gc.collect()
    before = counts.rematerialized_bytes
    with torch.memory.budget(host.allocated + int(0.6 * peak), spill=False):
        assert trained() == want
    assert counts.rematerialized_bytes > before


def outcome(program: Any) -> list[bytes]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.BatchNorm1d(256), torch.nn.GELU(),
        torch.nn.Dropout(0.2), torch.nn.Linear(256, 256), torch.nn.Tanh(),
        torch.nn.LayerNorm(256), torch.nn.Linear(256, 128), torch.nn.Softmax(-1),
    )  # fmt: skip
    x = torch.randn(2048, 128, requires_grad=True)
    found = program(x, net)
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    return [t.detach()._storage.flat().tobytes() for t in (found, *grads, *net.buffers())]


@pytest.mark.parametrize("how", ["spill", "make", "always"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_programs_have_the_same_bits(program: Any, how: str) -> None:
    setting.set_budget(None)
    gc.collect()
    base = host.allocated
    torch.memory.reset_peak_memory_stats()
    want = outcome(program)
    peak = host.peak - base
    gc.collect()
    if how == "always":
        assert within("always", True, program) == want
        return
    fitting = 0
    for share in (0.4, 0.55, 0.7, 0.85):
        found = within(host.allocated + int(share * peak), how == "spill", program)
        assert found is None or found == want
        fitting += found is not None
    assert fitting


def within(size: Any, spill: bool, program: Any) -> list[bytes] | None:
    """What the program gives within a budget; None where one of its ops needs more."""
    before = counts.evictions
    torch.memory.reset_peak_memory_stats()
    try:
        with torch.memory.budget(size, spill=spill):
            bound = host.bound
            found = outcome(program)
            assert bound is not None
            assert host.peak <= bound
    except OutOfMemoryError:
        gc.collect()
        return None
    assert counts.evictions > before
    return found
