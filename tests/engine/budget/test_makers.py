"""What is made from numbers alone is made again, with the same bits and the stream where it was."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import filling, setting
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp._ops.random import generator
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, N, held
from tests.engine.budget.test_recipes import drop
from tests.support.books import on_threads
from tests.support.running import default_mode

# what is noted follows the mode
pytestmark = [default_mode, pytest.mark.usefixtures("obeyed")]

MAKERS: dict[str, Callable[[], Any]] = {
    "zeros": lambda: torch.zeros(512, 512),
    "ones": lambda: torch.ones((512, 512), dtype=torch.float64, requires_grad=True),
    "full": lambda: torch.full((512, 512), 3),
    "full of a truth": lambda: torch.full((1 << 20,), True),
    "arange": lambda: torch.arange(1 << 17),
    "arange of fractions": lambda: torch.arange(0, 1 << 10, 0.0078125, device="cpu"),
    "linspace": lambda: torch.linspace(-1, 1, 1 << 18),
    "eye": lambda: torch.eye(512),
    "rand": lambda: torch.rand(512, 512),
    "randn": lambda: torch.randn((512, 512), dtype=torch.bfloat16),
    "randn of two": lambda: torch.randn(torch.Size([512, 512]), requires_grad=True),
    "randint": lambda: torch.randint(-9, 9, (512, 512)),
    "randperm": lambda: torch.randperm(1 << 17),
    "zeros_like": lambda: torch.zeros_like(torch.empty(512, 512), dtype=torch.float64),
    "ones_like of a turned one": lambda: torch.ones_like(torch.empty(512, 256).t()),
    "full_like": lambda: torch.full_like(torch.empty(512, 512), 0.5, requires_grad=True),
    "rand_like": lambda: torch.rand_like(torch.empty(256, 512).t()),
    "randn_like in a format": lambda: torch.randn_like(
        torch.empty(4, 8, 64, 64), memory_format=torch.channels_last
    ),
    "randint_like": lambda: torch.randint_like(torch.empty(512, 512), -9, 9),
    "new_zeros": lambda: torch.empty(3, dtype=torch.float64).new_zeros(512, 512),
    "new_ones": lambda: torch.empty(3, dtype=torch.int64).new_ones((512, 512)),
    "new_full": lambda: torch.empty(3).new_full((512, 512), 7, device="cpu"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_a_maker_makes_its_result_again(make: Callable[[], Any], default: Any) -> None:
    """Also where the default dtype is another one meanwhile."""
    torch.manual_seed(4)
    torch.randn(17)  # an odd number, of which the generator keeps the other one of a pair
    t = make()
    want, after = t._storage.flat().tobytes(), torch.randn(3).tolist()
    torch.manual_seed(4)
    torch.randn(17)
    t = make()
    assert drop(t)
    torch.set_default_dtype(default)
    try:
        assert t._storage.flat().tobytes() == want
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.randn(3).tolist() == after


def test_what_is_shaped_as_a_tensor_does_not_need_it() -> None:
    """Nor that its numbers are as they were."""
    x = torch.rand(512, 512)
    t, zeros = torch.randn_like(x), x.new_zeros(512, 512)
    want = t.tolist()
    x.mul_(2)
    del x
    assert drop(t)
    assert t.tolist() == want
    assert drop(zeros)
    assert not zeros.any()


OTHERS: dict[str, Callable[[Any], Any]] = {
    "of a stream": lambda t: torch.randn(512, 512, generator=torch.Generator()),
    "into a tensor": lambda t: torch.rand(512, 512, out=t),
    "unset": lambda t: torch.empty(512, 512),
    "unset like another": torch.empty_like,
    "of a number that a tensor holds": lambda t: torch.full_like(t, torch.tensor(3.0)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_else_a_maker_needs_is_not_noted(make: Callable[[Any], Any]) -> None:
    t = torch.empty(512, 512)
    made = make(t)
    assert not drop(made)


DRAWN: dict[str, Callable[[Any], Any]] = {
    "bernoulli": torch.bernoulli,
    "bernoulli by a chance": lambda t: torch.bernoulli(t, 0.2),
    "gamma": torch._standard_gamma,
    "dirichlet": torch._sample_dirichlet,
    "binomial": lambda t: torch.binomial(torch.full_like(t, 9), t),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_numbers_that_are_drawn_by_tensors_are_not_made_again(draw: Callable[[Any], Any]) -> None:
    """Nobody noted the state that they are of: called again, the op drew others."""
    chances = torch.full((512, 512), 0.5)
    drawn = draw(chances)
    want = drawn._storage.flat().tobytes()
    assert not drop(drawn)
    assert drawn._storage.flat().tobytes() == want


def test_a_small_draw_does_not_ask_for_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes longer than the draw."""
    asked: list[int] = []
    monkeypatch.setattr(filling, "drawn", lambda _: asked.append(1))
    torch.randn(64, 64)
    torch.randint(1 << 20, (4, 4))
    torch.randperm(100)
    assert not asked


@pytest.mark.parametrize("draw", [lambda: torch.randn(512, 512), lambda: torch.empty(N).uniform_()])
def test_threads_that_draw_at_once_make_their_own_numbers_again(draw: Callable[[], Any]) -> None:
    """Nobody draws between the state that is noted and the draw; and what is made again leaves the
    stream alone, in which another thread is just then.
    """
    wrong: list[int] = []
    began = threading.Barrier(3)

    def work() -> None:
        began.wait()
        for i in range(24):
            t = draw()
            want = t._storage.flat().tobytes()
            assert drop(t)
            if t._storage.flat().tobytes() != want:
                wrong.append(i)

    def few() -> None:
        began.wait()
        for _ in range(4000):
            torch.rand(7)

    each = iter((work, work, few))
    on_threads(lambda: next(each)(), 3)
    assert not wrong


def test_making_a_draw_again_leaves_the_stream_to_others() -> None:
    t = torch.randn(512, 512)
    assert drop(t)
    state = torch.get_rng_state()
    engine: Any = torch.default_generator._engine
    set_state = type(engine).set_state
    seen: list[Any] = []

    def noted(self: Any, new: Any) -> None:
        seen.append(self)
        set_state(self, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(engine), "set_state", noted)
        t.sum()
    assert len(seen) == 1
    assert seen[0] is not engine
    assert torch.equal(torch.get_rng_state(), state)


def test_making_a_draw_again_does_not_wait_for_who_draws() -> None:
    """Who draws may need the storages' lock, which the other one has: for what its numbers are
    drawn by, or for room for them.
    """
    drawn, rates = torch.randn(512, 512), torch.ones(512, 512).cumsum(0)
    expected = drawn.sum().item()
    assert drop(drawn)
    assert drop(rates)
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(drawn.sum().item()), daemon=True)
    with generator.LOCK():
        other.start()
        other.join(20)
        waits = other.is_alive()
        if not waits:
            torch.poisson(rates)
    other.join()
    assert not waits
    assert found == [expected]


def test_data_that_a_program_draws_goes_without_a_file() -> None:
    """Eight batches of 1 MiB, of which four fit; without recipes for them they were refused."""
    setting.set_budget(None)
    gc.collect()
    pool.empty_cache()

    def drawn() -> list[float]:
        torch.manual_seed(1)
        batches = [torch.randn(512, 512) for _ in range(8)]
        return [float(b.sum()) for _ in range(2) for b in batches]

    want = drawn()
    gc.collect()
    pool.empty_cache()
    most = held() + 4 * MIB
    torch.memory.reset_peak_memory_stats()
    with torch.memory.budget(most, spill=False):
        assert drawn() == want
        with pytest.raises(OutOfMemoryError):  # what can't be made again stays
            _ = [torch.randn(512, 512, generator=torch.Generator()) for _ in range(8)]
    assert host.peak <= most
