"""Programs at random on tensors whose memory the pool has, with results that are held while others
are computed: deferred and not, the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hypothesis import given, settings, strategies as st

import skimp

SHAPE: Final = (1 << 18, 4)  # a column of it is the pool's too
GIVEN: Final = [
    (np.random.default_rng(seed).random(SHAPE) + 0.05).astype(np.float32) for seed in range(2)
]
NAMES: Final = ("exp", "sqrt", "tanh", "reciprocal", "sigmoid", "square", "abs", "relu", "log1p")
F = skimp.nn.functional

READERS: Final[list[Callable[[Any], Any]]] = [
    lambda t: t.sum(-1),
    lambda t: t.amax(-1),
    lambda t: t.var(-1),
    lambda t: t.logsumexp(-1),
    lambda t: t.softmax(-1),
    lambda t: t.cumsum(-1),
    lambda t: t.t().contiguous(),
    lambda t: t[t > 1],
    lambda t: skimp.cat([t, t * 2]),
    lambda t: t.view(-1, 64) @ skimp.ones(64, 3),
    lambda t: F.layer_norm(t, (4,)),
    lambda t: F.avg_pool1d(t[None], 2, 1),
    lambda t: t.double(),
    lambda t: t[:, 1:3] * 2,
]


def _further(choose: random.Random, t: Any, sources: list[Any], steps: int) -> Any:
    """Some pointwise ops, of which nobody holds what they make on the way."""
    for _ in range(steps):
        kind = choose.randrange(5)
        if kind < 2:
            t = getattr(t, choose.choice(NAMES))()
        elif kind == 2:
            t = t * t
        elif kind == 3:
            t = t * choose.choice([0.5, 2.0, 3.0])
        else:
            t = t * choose.choice(sources)
    return t


def _program(seed: int) -> list[Any]:
    choose = random.Random(seed)
    makers: list[Any] = [skimp.from_numpy, skimp.from_numpy, skimp.tensor]
    sources = [choose.choice(makers)(array.copy()) for array in GIVEN]
    if choose.random() < 0.7:
        sources[0].requires_grad_()
    between = _further(choose, sources[0], sources, choose.randrange(1, 3))
    held = [_further(choose, between, sources, choose.randrange(1, 4)) for _ in range(2)]
    if choose.random() < 0.7:
        del between
    seen = [choose.choice(READERS)(choose.choice(held)) for _ in range(choose.randrange(3))]
    last = choose.choice(held)
    if last.requires_grad:
        if choose.random() < 0.5:
            last.sum().backward()
        else:
            last.backward(skimp.ones(SHAPE))
        seen.append(sources[0].grad)
    return [t.detach().numpy().copy() for t in (*seen, *held)]


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_what_is_held_while_others_are_computed_has_the_same_bits(seed: int) -> None:
    with skimp.config.using(defer="never"):
        expected = _program(seed)
    with skimp.config.using(defer="auto"):
        found = _program(seed)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)
