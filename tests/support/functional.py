"""One call of nn.functional on both sides: values, types, shapes, and the gradients of every
float.
"""

from __future__ import annotations

from typing import Any

import torch

import skimp
from tests.support.samples import same, twin


def both(name: str, *args: Any, tolerance: float | None = None, **words: Any) -> Any:
    """nn.functional.name on both sides: equal results, and equal gradients of what requires
    grad.
    """
    f, g = getattr(torch.nn.functional, name), getattr(skimp.nn.functional, name)
    mine, my_words = twin(list(args)), twin(words)
    want, got = f(*args, **words), g(*mine, **my_words)
    same(got, want, tolerance, strides=False)
    leaves = [
        t for t in (*args, *words.values()) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    my_leaves = [
        t for t in (*mine, *my_words.values()) if isinstance(t, skimp.Tensor) and t.requires_grad
    ]
    if leaves:
        first, mine_first = (x[0] if isinstance(x, tuple) else x for x in (want, got))
        seed = torch.randn(first.shape, dtype=torch.float64).to(first.dtype)
        grads = torch.autograd.grad(first, leaves, seed)
        mine_too = skimp.autograd.grad(mine_first, my_leaves, twin(seed))
        same(mine_too, grads, None if tolerance is None else 10 * tolerance, strides=False)
    return got


def randn(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)
