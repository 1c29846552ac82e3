"""Few numbers at a time, and draws one after another: the stream goes on where PyTorch's does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings, strategies as st

from skimp._kernels.random import draws, few
from tests.kernels.test_draws import (
    FLOATS,
    Draw,
    check_all,
    near_blocks,
    same_bits,
    seeds,
    unlike_mkl,
)

STEPS: dict[str, Draw] = {
    "normal": (lambda t, g: t.normal_(generator=g), lambda a, e: draws.normal(a, 0, 1, e)),
    "uniform": (lambda t, g: t.uniform_(generator=g), lambda a, e: draws.uniform(a, 0, 1, e)),
    "random": (lambda t, g: t.random_(generator=g), draws.random_),
    "dice": (lambda t, g: t.random_(1, 7, generator=g), lambda a, e: draws.random_(a, e, 1, 7)),
    "log_normal": (
        lambda t, g: t.log_normal_(generator=g),
        lambda a, e: draws.log_normal(a, 1, 2, e),
    ),
}


@given(
    seeds,
    st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 40), st.sampled_from(FLOATS)),
        max_size=12,
    ),
)
@settings(max_examples=40, deadline=None)
def test_interleaved(seed: int, program: list[tuple[str, int, torch.dtype]]) -> None:
    check_all(seed, [(STEPS[name], n, dtype) for name, n, dtype in program])


FEW: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "uniforms": (lambda n, g: torch.rand(n, generator=g), few.uniforms),
    "drawn uniforms": (lambda n, g: torch.rand(n, generator=g), few.drawn_uniforms),
    "normals": (lambda n, g: torch.randn(n, generator=g), few.normals),
    "stays": (
        lambda n, g: torch.empty(n, dtype=torch.bool).bernoulli_(0.3, generator=g),
        lambda n, e: draws.stays(n, 0.3, e),
    ),
}


def _general(name: str, n: int, engine: draws.Engine) -> Any:
    made = np.empty(n, np.float32)
    draw = draws.uniform if "uniforms" in name else draws.normal
    draw(made, 0, 1, engine)
    return made


@given(
    seeds,
    st.lists(
        st.tuples(st.sampled_from(sorted(FEW)), st.one_of(st.integers(1, 40), near_blocks)),
        max_size=60,
    ),
)
@settings(max_examples=40, deadline=None)
@unlike_mkl
def test_few_numbers_at_a_time(seed: int, program: list[tuple[str, int]]) -> None:
    """Whatever was drawn before: out of words at hand, and across their end."""
    generator, engine = torch.Generator().manual_seed(seed), draws.Engine(seed)
    for name, n in program:
        theirs, ours = FEW[name]
        made = ours(n, engine)
        same_bits(theirs(n, generator), _general(name, n, engine) if made is None else made)
    assert bytes(generator.get_state().numpy()) == engine.get_state().tobytes()
