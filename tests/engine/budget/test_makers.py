"""What is made from numbers alone is made again, with the same bits and the stream where it was."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import skimp as torch
from skimp._engine.budget import setting
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp.errors import OutOfMemoryError
from tests.engine.budget.holding import MIB, held
from tests.engine.budget.test_recipes import drop
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


OTHERS: dict[str, Callable[[Any], Any]] = {
    "of a stream": lambda t: torch.randn(512, 512, generator=torch.Generator()),
    "into a tensor": lambda t: torch.rand(512, 512, out=t),
    "unset": lambda t: torch.empty(512, 512),
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
    generator = torch.default_generator
    monkeypatch.setattr(generator, "get_state", lambda: asked.append(1))
    torch.randn(64, 64)
    torch.randint(1 << 20, (4, 4))
    torch.randperm(100)
    assert not asked


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
