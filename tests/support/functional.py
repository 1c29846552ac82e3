"""One call on both sides: values, types, shapes, and the gradients of every float that asks for
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import skimp
from tests.support.samples import same, tensors_in, twin


def graded(f: Callable[..., Any], *args: Any, tolerance: float | None = None, **words: Any) -> Any:
    """f(library, ...) on both sides: equal results, and equal gradients, of all results that have
    some, in what requires grad. Ours is returned.
    """
    mine, my_words = twin(list(args)), twin(words)
    want, got = f(torch, *args, **words), f(skimp, *mine, **my_words)
    same(got, want, tolerance, strides=False)
    leaves = [t for t in tensors_in([*args, *words.values()]) if t.requires_grad]
    my_leaves = [t for t in tensors_in([*mine, *my_words.values()]) if t.requires_grad]
    if leaves:
        results = [t for t in tensors_in(want) if t.requires_grad]
        my_results = [t for t in tensors_in(got) if t.requires_grad]
        seeds = [torch.randn(t.shape, dtype=torch.float64).to(t.dtype) for t in results]
        grads = torch.autograd.grad(results, leaves, seeds, allow_unused=True)
        my_grads = skimp.autograd.grad(my_results, my_leaves, twin(seeds), allow_unused=True)
        same(my_grads, grads, None if tolerance is None else 10 * tolerance, strides=False)
    return got


def both(name: str, *args: Any, tolerance: float | None = None, **words: Any) -> Any:
    """`graded` of nn.functional.name."""
    return graded(
        lambda library, *args, **words: getattr(library.nn.functional, name)(*args, **words),
        *args,
        tolerance=tolerance,
        **words,
    )


def randn(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)
