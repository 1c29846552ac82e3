"""Scratch memory of kernels counts within a budget: bytes, on whichever thread they are."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skimp as torch
from skimp._engine.budget import telling
from skimp._engine.budget.statistics import counts
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.eval.rows import map_rows
from skimp._engine.memory import allocator
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp._kernels import activation, channels, conv_onednn, onednn, recurrence_onednn, scratch
from skimp._kernels.im2col import Window
from skimp._kernels.threads import share
from skimp.config import config
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, numbers
from tests.support.running import default_mode

F = torch.nn.functional
BYTE = np.dtype(np.uint8)


def use(nbytes: int) -> None:
    """What a kernel does with its scratch memory."""
    scratch.give(scratch.take(nbytes, BYTE))


def use_on_two_threads(nbytes: int) -> None:
    """Both use theirs at once."""
    meet = threading.Barrier(2)

    def part() -> None:
        meet.wait(60)
        room = scratch.take(nbytes, BYTE)
        meet.wait(60)
        scratch.give(room)

    share(part, 2)


def full() -> int:
    """Bytes that count now."""
    gc.collect()
    return host.reserved_for(0)


def test_what_threads_keep_is_reserved_and_goes_with_the_budget() -> None:
    use(3 * MIB)
    base = full()
    assert scratch.kept() >= 3 * MIB
    with torch.memory.budget(base + 16 * MIB):
        assert scratch.kept() == 0  # what nobody had counted
        use_on_two_threads(2 * MIB)
        assert scratch.kept() == 4 * MIB
        assert pool.rounding == 4 * MIB
        assert pool.reserved >= 4 * MIB
        assert host.reserved_for(0) == host.allocated + 4 * MIB
    assert scratch.kept() == pool.rounding == 0


def test_room_is_made_for_it_by_what_may_go() -> None:
    base = full()
    with torch.memory.budget(base + 6 * MIB):
        made = [numbers(i) for i in range(6)]
        counts.reset()
        use_on_two_threads(2 * MIB)
        # of what is alive, these or what other tests left, which may be larger and go first
        assert counts.evicted >= 4 * MIB
        assert scratch.kept() == 4 * MIB
        assert host.reserved_for(0) <= base + 6 * MIB
        assert not counts.beyond
        for i, t in enumerate(made):
            assert np.array_equal(t.numpy(), numbers(i).numpy())


def test_who_can_do_without_has_none_beyond_the_budget() -> None:
    """Of a convolution's threads all but one."""
    if onednn.library() is None:
        pytest.skip("skimp[onednn] is not installed")
    w = Window((32, 32), (3, 3), (1, 1), (1, 1), (1, 1), (32, 32))
    x, g = [np.ones((8, 1, 32, 32, 32), "f4") for _ in range(2)]
    arrays = x, np.ones((1, 32, 32, 3, 3), "f4"), g
    with config.using(threads=2, threads_from=1):
        way = conv_onednn._way_for("forward", arrays, w, False)
        assert way is not None
        works = way.works
        need = 4 * (works[0].room + works[0]._pieces[0][0].plan.weights)
        with torch.memory.budget(full() + need + 2 * works[0].room):
            counts.reset()
            for _ in range(20):
                conv_onednn._share([works[0]], [("forward", arrays, None)])
                scratch.drop()
            assert not counts.beyond
    assert np.all(g[..., 1:-1, 1:-1] == 288)


def test_updates_take_shorter_blocks_where_there_is_no_room_for_registers() -> None:
    """With the same bits, and on one thread where there is none for a second one's."""

    def stepped(room: int | None) -> Any:
        p = torch.full((1 << 17,), 0.7, requires_grad=True)
        p.grad = torch.linspace(-1, 1, 1 << 17)
        optimizer = torch.optim.Adam([p])
        optimizer.step()
        arrays = [p.detach().numpy(), p.grad.numpy()]
        arrays += [t.numpy() for t in optimizer.state[p].values() if t.ndim]  # none may go
        if room is None:
            optimizer.step()
        else:
            scratch.drop()
            with torch.memory.budget(full() + room, spill=False):
                counts.reset()
                optimizer.step()
                assert not counts.beyond
        return [a.copy() for a in arrays]

    with config.using(threads=2, threads_from=1):
        wanted = stepped(None)
        for room in (3 * MIB // 16, MIB // 2):
            found = stepped(room)
            assert all(map(np.array_equal, found, wanted))


def test_rows_of_an_expression_are_fewer_where_there_is_no_room() -> None:
    x = torch.linspace(-1, 1, 1 << 18).view(512, 512)

    def sums(room: int) -> Any:
        out = np.empty(512, "f4")
        source = source_of((x * 2).sin() + x, in_order=True)[0]
        with torch.memory.budget(full() + room, spill=False):
            counts.reset()
            map_rows(source, lambda rows, out: np.add.reduce(rows, 1, out=out), (out,), 1)
            assert not counts.beyond
        return out

    with config.using(threads=2, threads_from=1, defer="always"):
        assert np.array_equal(sums(MIB // 2), sums(16 * MIB))


@pytest.mark.parametrize("images", [(128, 1024), (2, 1 << 16), (1, 40000, 1), (3, 11000, 2)])
def test_gradients_of_channels_are_mixed_in_pieces_where_there_is_no_room(images: Any) -> None:
    rng = np.random.default_rng(0)
    g, x = [rng.random(images, "f4") for _ in range(2)]
    line = [rng.random((*images[-2:-1], 1), "f4") for _ in range(3)]

    def mixed(room: int) -> Any:
        out = np.empty_like(x)
        with torch.memory.budget(full() + room, spill=False):
            counts.reset()
            channels.mixed(g, x, out, *line)
            assert not counts.beyond
        return out

    assert np.array_equal(mixed(MIB // 8), mixed(16 * MIB))


@pytest.mark.parametrize("name", ["layer_norm", "cross_entropy"])
def test_what_is_worked_on_where_it_will_be_takes_no_room_beside_it(name: str) -> None:
    x = torch.rand(512, 512).requires_grad_()

    def loss() -> Any:
        if name == "layer_norm":
            return F.layer_norm(x, (512,)).sum()
        return F.cross_entropy(x, torch.arange(512), label_smoothing=0.1)

    with config.using(threads=1), torch.memory.budget("1GiB"):
        y = loss()
        if name == "cross_entropy":
            scratch.drop()
            y.backward()
        assert scratch.kept() < x.nbytes // 8


def test_a_convolution_is_made_in_smaller_pieces_where_there_is_little_room() -> None:
    if onednn.library() is None:
        pytest.skip("skimp[onednn] is not installed")
    w = Window((32, 32), (3, 3), (1, 1), (1, 1), (1, 1), (32, 32))
    x, g = np.ones((1, 1, 64, 32, 32), "f4"), np.ones((1, 1, 64, 32, 32), "f4")
    arrays = x, np.ones((1, 64, 64, 3, 3), "f4"), g
    way = conv_onednn._way_for("forward", arrays, w, False)
    assert way is not None
    works = way.works
    if works[0].narrow is works[0]:
        pytest.skip("this processor's code is another for fewer channels")
    with torch.memory.budget(full() + pool.rounded(4 * works[0].narrow.room + 64)):
        counts.reset()
        assert conv_onednn.forward(x, arrays[1], None, g, w)
        assert not counts.beyond
    assert np.all(g[..., 1:-1, 1:-1] == 576)


@pytest.mark.parametrize("layer", [torch.nn.Conv2d, torch.nn.ConvTranspose2d])
def test_what_a_waiting_input_is_made_of_goes_before_a_convolutions_result_is_there(
    layer: Any,
) -> None:
    torch.manual_seed(0)
    norm, second = torch.nn.BatchNorm2d(16), layer(16, 16, 3, padding=1)
    x = torch.randn(16, 16, 64, 64)  # 4 MiB, as each result; it may go
    wanted = second(norm(x).relu()).detach().numpy().tobytes()
    with torch.memory.budget(full() + 6 * MIB):
        made = torch.cat([x])
        result = second(norm(made).relu())
        assert result.detach().numpy().tobytes() == wanted


OPS: dict[str, Callable[[Any], Any]] = {
    "cat": lambda y: torch.cat([y[8:], y[:8]]),
    "cumsum": lambda y: y.cumsum(1),
    "logcumsumexp": lambda y: y.logcumsumexp(1),
    "roll": lambda y: y.roll(3, 2),
    "flip": lambda y: y.flip(2),
    "repeat": lambda y: y.repeat(1, 1, 1, 1),
    "unfold": lambda y: F.unfold(y, 1),
    "avg_pool2d": lambda y: F.avg_pool2d(y, 3, 1, 1),
    "attention": lambda y: F.scaled_dot_product_attention(y, y, y),
    "softmax": lambda y: y.softmax(1),
    "index": lambda y: y[torch.arange(16)],
    "index_select": lambda y: y.index_select(0, torch.arange(16)),
    "gather": lambda y: y.gather(1, torch.arange(16).view(16, 1, 1, 1).expand(16, 16, 64, 64)),
}


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_what_an_op_reads_is_there_before_there_is_room_for_its_result(
    name: str, spill: bool
) -> None:
    torch.manual_seed(0)
    norm, x = torch.nn.BatchNorm2d(16), torch.randn(16, 16, 64, 64)  # 4 MiB, as each result
    with torch.no_grad():
        wanted = OPS[name](norm(x).relu()).numpy().tobytes()
        with torch.memory.budget(full() + 9 * MIB, spill=spill):
            made = torch.cat([x])
            y = norm(made).relu()
            result = OPS[name](y)
            del made, y
            assert result.numpy().tobytes() == wanted


def test_partial_sums_of_a_convolutions_weights_count() -> None:
    if onednn.library() is None:
        pytest.skip("skimp[onednn] is not installed")
    w = Window((16, 16), (3, 3), (1, 1), (1, 1), (1, 1), (16, 16))
    x, weight = np.ones((8, 1, 64, 16, 16), "f4"), np.empty((1, 64, 64, 3, 3), "f4")
    with torch.memory.budget(full() + 64 * MIB):
        assert conv_onednn.weights(x, x, weight, w, None)
        assert scratch.kept() > 4 * weight.nbytes
    assert weight.max() == 8 * 256


def test_gradients_of_activations_take_shorter_pieces_where_there_is_no_room() -> None:
    g, x = np.random.default_rng(0).standard_normal((2, 1 << 17)).astype("f4")
    backward = (
        activation.threshold_backward,
        activation.hardtanh_backward,
        activation.leaky_relu_backward,
    )

    def made() -> list[Any]:
        return [fn(g, x, out=(out := np.empty_like(x))) or out for fn in backward]

    wanted = made()
    with torch.memory.budget(full() + MIB // 8, spill=False):
        counts.reset()
        found = made()
        assert not counts.beyond
    assert all(map(np.array_equal, found, wanted))


def test_a_convolution_without_room_for_scratch_is_refused() -> None:
    """Before it writes."""
    if onednn.library() is None:
        pytest.skip("skimp[onednn] is not installed")
    x, w = torch.ones(4, 16, 32, 32), torch.ones(16, 16, 3, 3)
    kept = x.numpy(), w.numpy()
    with torch.no_grad():
        torch.conv2d(x, w, padding=1)
        scratch.drop()
        with torch.memory.budget(full() + x.nbytes + 4096, spill=False):
            counts.reset()
            with pytest.raises(OutOfMemoryError, match="conv2d"):
                torch.conv2d(x, w, padding=1)
            assert not counts.beyond
    del kept


def test_scratch_that_the_system_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> Any:
        raise MemoryError

    with torch.memory.budget(full() + 64 * MIB):
        monkeypatch.setattr(pool, "_find", lambda claim: False)
        monkeypatch.setattr(pool, "_map", pool._map_again)
        monkeypatch.setattr(pool, "_raw", refuse)
        with pytest.raises(OutOfMemoryError):
            scratch.demand(32 * MIB, BYTE)


def test_a_recurrent_layer_without_room_for_its_weights_is_refused_by_its_line() -> None:
    weights = np.ones((512, 128), "f4")
    with recurrence_onednn.activation(weights, 4, 64, True) as step:
        if step is None:
            pytest.skip("oneDNN is not there, or does not make it")
    with torch.memory.budget(full() + 4096):
        counts.reset()
        with (
            pytest.raises(OutOfMemoryError, match=r"test_scratch.py"),
            recurrence_onednn.activation(weights, 4, 64, True),
        ):
            pass
        assert not counts.beyond


def test_an_input_may_go_before_there_is_its_gradient() -> None:
    """A convolution makes one gradient after the other where there is no room for both at once."""
    if onednn.library() is None:
        pytest.skip("skimp[onednn] is not installed")

    def gradients() -> tuple[Any, Any]:
        x, w = torch.zeros(4, 16, 64, 64, requires_grad=True), torch.ones(16, 16, 3, 3)
        w.requires_grad_()
        torch.conv2d(x + 1, w, padding=1).backward(torch.ones(4, 16, 64, 64))
        return x.grad, w.grad

    want = [t.numpy() for t in gradients()]
    with torch.memory.budget(full() + 7 * MIB // 2):
        counts.reset()
        found = [t.numpy() for t in gradients()]
        assert not counts.beyond
    for a, b in zip(found, want, strict=True):
        assert np.array_equal(a, b)


def test_what_nobody_uses_goes_before_a_tensor() -> None:
    base = full()
    with torch.memory.budget(base + 6 * MIB):
        made = [numbers(i) for i in range(4)]
        use(2 * MIB)
        counts.reset()
        made += [numbers(i) for i in range(4, 6)]
        assert not counts.evictions
        assert scratch.kept() == 0
        assert host.reserved_for(0) == base + 6 * MIB


def test_a_small_tensor_finds_no_room_where_scratch_is() -> None:
    base = full()
    with torch.memory.budget(base + 4 * MIB, spill=False):
        room = scratch.take(4 * MIB, BYTE)
        with pytest.raises(OutOfMemoryError):
            torch.ones(1000)
        scratch.give(room)
        del room
        assert torch.ones(1000).sum() == 1000


def test_where_nothing_may_go_it_is_had_beyond_the_budget_and_told() -> None:
    base = full()
    with torch.memory.budget(base + 4 * MIB):
        x = numbers(0, 1 << 20)
        array = x.numpy()  # from now on it stays
        counts.reset()
        use(MIB)
        assert counts.beyond == MIB
        assert "1.00 MiB less than an op needed with its scratch" in telling.report(base + 4 * MIB)
        assert scratch.kept() == 0  # not a moment longer than it was used
        assert host.reserved_for(0) == base + 4 * MIB
        del array


@default_mode  # what is not deferred needs other budgets
@pytest.mark.parametrize("near", [False, True])
def test_what_temporaries_have_left_is_given_back_near_the_bound(
    near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[None] = []
    monkeypatch.setattr(allocator, "trim", lambda: trims.append(None))
    x = torch.ones(1 << 20, requires_grad=True)
    with torch.memory.budget(full() + (9 if near else 128) * MIB // 2):
        (x * x).sum().backward()
        assert x.grad is not None
        assert x.grad[0].item() == 2  # 4 MiB
        x.sum().backward()  # begins with these
        assert bool(trims) == near
        x.grad = None


def test_kernels_stay_within_the_budget() -> None:
    """A convolution and its gradients, by pieces that threads share."""
    weight = torch.ones(16, 16, 3, 3, requires_grad=True)
    x = torch.ones(32, 16, 32, 32)

    def step() -> Any:
        weight.grad = None
        y = x
        for _ in range(4):
            y = torch.nn.functional.conv2d(y, weight, padding=1).relu() / 100
        y.sum().backward()
        return weight.grad.numpy().copy()

    wanted = step()
    scratch.drop()
    base = full()
    with torch.memory.budget(base + 12 * MIB):
        pool.reset_peaks()
        counts.reset()
        for _ in range(3):
            assert np.array_equal(step(), wanted)
        assert counts.evictions
        assert pool.most <= base + 12 * MIB
        assert not counts.beyond
