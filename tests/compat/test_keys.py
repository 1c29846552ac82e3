"""PyTorch's names for kernels' places in its dispatcher, and sets of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import skimp

NAMES = sorted(torch._C.DispatchKey.__members__)


def seen(module: Any, names: list[str]) -> list[Any]:
    """What sets of four keys print and answer."""
    key, keys = module._C.DispatchKey, module._C.DispatchKeySet
    a, b, c, d = [getattr(key, name) for name in names]
    some = keys(a) | keys(b).add(d)
    sets = [some, some - keys(c), some & keys(c), some.remove(d)]
    return [*map(repr, sets), some.has(c), some == keys(a), repr(c), str(c), int(c)]


@pytest.mark.parametrize("seed", range(200))
def test_keys_are_pytorchs(seed: int) -> None:
    names = random.Random(seed).choices(NAMES, k=4)
    assert seen(skimp, names) == seen(torch, names)


def test_there_are_as_many_keys() -> None:
    assert sorted(skimp._C.DispatchKey.__members__) == NAMES


def test_what_is_no_key_is_refused() -> None:
    for module in (torch, skimp):
        with pytest.raises(TypeError, match="incompatible constructor arguments"):
            module._C.DispatchKeySet(1)
        with pytest.raises(TypeError, match="unhashable"):
            hash(module._C.DispatchKeySet(module._C.DispatchKey.CPU))
