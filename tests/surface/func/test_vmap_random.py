"""Random numbers under vmap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.surface.func.test_func import compare, data
from tests.surface.func.test_vmap import Case

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    # where PyTorch has no batching rule itself
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning"),
]


# -- random numbers -------------------------------------------------------------------------------

RANDOM: dict[str, Case] = {
    "rand": lambda t, v: t.rand(2) + t.randn((3, 2)) + t.rand(size=(2,)),
    "rand_like": lambda t, v: t.rand_like(v),
    "randint": lambda t, v: t.randint(0, 9, (4,)) + t.randint(5, (4,)),
    "randperm": lambda t, v: t.randperm(5),
    "normal": lambda t, v: t.normal(1.0, 2.0, (3,)),
    "in place": lambda t, v: v.clone().normal_().add_(v.clone().uniform_(1, 2)),
    "bernoulli_": lambda t, v: v.clone().bernoulli_(0.3),
    "dropout": lambda t, v: t.nn.functional.dropout(v, 0.4),
    "dropout2d": lambda t, v: t.nn.functional.dropout2d(v[:, None, None, None].expand(3, 2, 2, 2)),
    "evaluated": lambda t, v: t.nn.functional.dropout(v, 0.4, training=False),
}
DIFFERENT: dict[str, Case] = {
    **RANDOM,
    "bernoulli": lambda t, v: t.bernoulli(v.sigmoid()),
    "multinomial": lambda t, v: t.multinomial(v.sigmoid(), 2),
    "normal of means": lambda t, v: t.normal(v, 2.0),
    "poisson": lambda t, v: t.poisson(v.exp()),
}


@pytest.mark.parametrize("mode", ["different", "same"])
@pytest.mark.parametrize("name", DIFFERENT)
def test_random_numbers_are_pytorchs(name: str, mode: str) -> None:
    if mode == "same" and name not in RANDOM:
        return  # refused, as the test of refusals says

    def case(t: Any, x: Any) -> Any:
        t.manual_seed(3)
        found = t.vmap(lambda v: DIFFERENT[name](t, v), randomness=mode)(x)
        return found, t.rand(2)  # and what is drawn next

    compare(case, data(5, 3).astype(np.float32))
