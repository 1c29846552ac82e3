"""Copies and casts: what is the tensor itself, and what is new."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch

import skimp
from skimp.errors import CopyError
from tests.support.samples import seeded as both


def test_a_cast_to_its_own_type_is_the_tensor() -> None:
    def run(lib: Any, functional: Any) -> Any:
        x = lib.ones(2, 3)
        kept = [x.float(memory_format=f) for f in (lib.preserve_format, lib.contiguous_format)]
        return [y is x for y in kept], x.double(memory_format=lib.contiguous_format).stride()

    ours, theirs = both(run)
    assert ours == theirs


SHAPES = ((24,), (4, 6), (2, 3, 4), (2, 1, 3, 4))
FORMS: dict[str, Callable[[Any, Any, tuple[int, ...]], Any]] = {
    "method": lambda lib, x, size: x.reshape(size),
    "numbers": lambda lib, x, size: x.reshape(*size),
    "function": lambda lib, x, size: lib.reshape(input=x, shape=size),
    "reshape_as": lambda lib, x, size: x.reshape_as(lib.empty(size)),
    "flatten": lambda lib, x, size: x.flatten(),
    "flatten some": lambda lib, x, size: lib.flatten(x, 0, 1),
    "ravel": lambda lib, x, size: x.ravel(),
    "contiguous": lambda lib, x, size: x.contiguous(),
    "Flatten": lambda lib, x, size: lib.nn.Flatten()(x),
}


def _laid_out(lib: Any, random: Random) -> Any:
    """A tensor of 24 to 72 elements that lies somehow."""
    x = lib.arange(24.0, requires_grad=random.random() < 0.3).reshape(random.choice(SHAPES))
    kind = random.choice(("plain", "product", "conj", "imag", "expand", "step"))
    if kind == "product":
        x = x * 2
    if kind in ("conj", "imag"):
        x = lib.complex(x, x).conj()
    if kind == "imag":
        x = x.imag
    if kind == "expand":
        x = x[:1].expand(3, *x.shape[1:])
    if kind == "step":
        x = x[::2]
    order = list(range(x.dim()))
    if random.random() < 0.6:
        random.shuffle(order)
    return x.permute(order)


def _size(n: int, random: Random) -> tuple[int, ...]:
    sizes = []
    while n > 1:
        sizes.append(random.choice([d for d in range(2, n + 1) if n % d == 0]))
        n //= sizes[-1]
    return tuple(sizes) or (1,)


def test_what_the_oracle_reshapes_without_a_copy_needs_none_here_and_only_that() -> None:
    seen = {True: 0, False: 0}
    for seed in range(600):
        x, y = (_laid_out(lib, Random(seed)) for lib in (torch, skimp))
        random = Random(-seed)
        form, size = random.choice(list(FORMS)), _size(x.numel(), random)
        try:
            there = FORMS[form](torch, x, size)
        except (RuntimeError, IndexError):
            continue  # of one dimension, of a view
        copied = there.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        refused = False
        with skimp.memory.no_copies():
            try:
                here = FORMS[form](skimp, y, size)
                assert here.is_conj() == there.is_conj()
            except CopyError:
                refused = True
        assert refused == copied, (seed, form, size, tuple(x.shape), x.stride())
        seen[copied] += 1
    assert min(seen.values()) > 100
