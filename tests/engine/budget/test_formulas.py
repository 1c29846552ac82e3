"""What a formula of backward works on at once is there before it takes the first, and what only it
still has it may write over, within a budget as well.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

import skimp as torch
from skimp._engine.memory.ledger import host
from skimp._engine.memory.rematerialize import rematerialized
from skimp._engine.tensor.tensor import wrap
from tests.engine.budget.holding import MIB, held, is_away
from tests.engine.budget.test_giving_up import WIDE, evict, square, wide, within
from tests.engine.budget.test_together import made
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted, and what must be there at once, follows the mode


@pytest.mark.usefixtures("obeyed")
def test_a_formula_has_what_it_works_on_before_it_takes_the_first() -> None:
    """It takes the result, and then the gradient, whose recipe has no room beside that."""
    x = square(1).requires_grad_()
    y = x.softmax(-1)
    g = wide(x.detach())
    y.backward(g, retain_graph=True)
    wanted, x.grad = x.grad.tolist(), None
    evict(y, g)
    with within(4 * MIB):
        y.backward(g)
        assert made() == {**WIDE, "softmax": 1}
    assert x.grad.tolist() == wanted


@pytest.mark.usefixtures("obeyed")
def test_a_formula_that_has_no_room_for_all_at_once_is_not_refused_for_that() -> None:
    """It may do with one after the other."""
    x = square(2)
    a, b = wide(x), wide(x + 1)
    evict(a, b)
    with within(4 * MIB):
        working = host.budget.working((a, None, 3, b))  # type: ignore[union-attr]
        working.gather((a, None, 3, b))
        working.end()
    assert a._storage.held == b._storage.held == 0


@pytest.mark.usefixtures("obeyed")
def test_what_a_formula_works_on_is_not_what_goes_for_its_results() -> None:
    """Though nobody has used it for long, and it costs little: it would be made again beside."""
    source = square(1)
    x, other = wide(source).view(8, 64, 512).requires_grad_(), wide(source)
    y = torch.nn.functional.batch_norm(x, None, None, training=True)
    g = square(3).view(8, 64, 512)
    wanted = torch.autograd.grad(y, x, g, retain_graph=True)[0].tolist()
    x._storage.used, other._storage.recipe[0].seconds = 0.0, 9.0
    other._storage.price = -1, None
    with within(MIB // 2):
        found = torch.autograd.grad(y, x, g)[0]
        assert made() == {}
        assert is_away(other)
    assert found.tolist() == wanted
    assert x._storage.held == 0


NEEDS = {"LSTM": 5.0, "GRU": 4.5, "RNN": 1.5}  # MiB beside the input and its result's gradient


@pytest.mark.parametrize("name", NEEDS)
def test_a_recurrent_layers_gradient_has_at_once_only_what_is_read_at_once(name: str) -> None:
    """Cells and the result's gradient for the steps, results and the input for the products after
    them: with a file each goes where another is read."""
    net = getattr(torch.nn, name)(128, 128)
    x, g = torch.randn(32, 64, 128).requires_grad_(), torch.randn(32, 64, 128)
    ends = [x, *net.parameters()]
    wanted = [t.tolist() for t in torch.autograd.grad(net(x)[0], ends, g)]
    torch.memory.empty_cache()
    before = held()
    y = net(x)[0]
    with torch.memory.budget(before + int(NEEDS[name] * MIB)):
        found = torch.autograd.grad(y, ends, g)
        assert [t.tolist() for t in found] == wanted


@pytest.mark.usefixtures("obeyed")
def test_what_is_away_is_not_brought_back_to_stand_for_a_result_that_is_saved() -> None:
    """A product saves the result of dropout as an expression of what that read, if it is there."""
    inside = square(1).requires_grad_().softmax(-1)
    y, w = torch.nn.functional.dropout(inside, 0.5), square(2).requires_grad_()
    y._storage.flat()
    evict(inside)
    z = y @ w
    assert is_away(inside)
    z.backward(square(3))
    wanted = y.detach().t() @ square(3)
    assert w.grad.tolist() == wanted.tolist()


LAYERS: dict[str, Any] = {  # of which all is kept for backward
    "LSTM": lambda: torch.nn.LSTM(128, 256, 2),
    "GRU": lambda: torch.nn.GRU(128, 256, 2),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_gradients_of_gates_take_the_place_of_the_gates_within_a_budget_too(make: Any) -> None:
    """What nobody else reads needs not stay as it is because it could be made again."""

    def train(net: Any, x: Any) -> tuple[Any, int]:
        gc.collect()
        before = host.allocated
        torch.memory.reset_peak_memory_stats()
        net(x)[0].square().mean().backward()
        found = [p.grad.tolist() for p in net.parameters()]
        net.zero_grad()
        return found, host.peak - before

    torch.manual_seed(0)
    net, x = make(), torch.randn(48, 64, 128)
    wanted, peak = train(net, x)
    with torch.memory.budget("64GiB", spill=False):
        found, within_it = train(net, x)
    assert found == wanted
    assert within_it <= peak + MIB // 4


@pytest.mark.parametrize("spill", [False, True])
def test_a_norms_gradient_is_made_over_one_that_comes_in_though_the_result_is_held(
    spill: bool,
) -> None:
    """A rectifier's gradient reads two that are added, and what the result waits for as well."""
    f = torch.nn.functional

    def trained() -> list[bytes]:
        torch.manual_seed(0)
        y = torch.randn(16, 16, 32, 32)
        weights = [torch.randn(16, 16, 3, 3).requires_grad_() for _ in range(4)]
        for w in weights:
            y = f.relu(f.batch_norm(f.conv2d(y, w, padding=1), None, None, training=True))
        (y * y).mean().backward()
        return [w.grad.numpy().tobytes() for w in weights]

    wanted = trained()
    torch.memory.empty_cache()
    with torch.memory.budget(held() + 4 * MIB, spill=spill):
        assert trained() == wanted


@pytest.mark.usefixtures("obeyed")
@pytest.mark.parametrize("written", [False, True])
def test_what_reads_what_stands_for_a_result_that_is_there_can_go(written: bool) -> None:
    """Its recipe reads that result, for no budget can know what stands for it."""
    x, other = square(1), square(2)
    y = x.exp()
    stand = rematerialized(y._storage.deferred, y._storage, waits=False)
    y._storage.flat()
    evict(y)
    stand.flat()
    assert is_away(y)
    again = wrap(stand, y._skimp_layout_of(), y.dtype)
    z = again + other
    wanted = z.tolist()
    del again, stand
    evict(z)
    if written:
        y.zero_()
    assert z.tolist() == wanted
    assert y.tolist() == (torch.zeros(512, 512) if written else x.exp()).tolist()
