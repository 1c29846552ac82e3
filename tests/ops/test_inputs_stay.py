"""Ops write nothing that they were given, nor their results later: inputs, results and gradients
have their bits after forward and backward, also where a dim of one element makes a slice
contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from tests.support.op_samples import entered, function_of, registry, samples_of

# What writes to what it is given: running statistics, and in-place forms by another name.
WRITE = {"module_load", "native_batch_norm", "batch_norm", "instance_norm"}
ROWS = {name: names for name, names in registry().items() if name not in WRITE and name[-1] != "_"}
CUTS: dict[str, Callable[[int], tuple[slice, ...]]] = {
    "whole": lambda ndim: (slice(None),) * ndim,
    "one plane of two by two": lambda ndim: (
        (slice(0, 1),) * max(0, ndim - 2) + (slice(0, 2),) * min(2, ndim)
    ),
    "one element": lambda ndim: (slice(0, 1),) * ndim,
}


def _cut(value: Any, cut: Callable[[int], tuple[slice, ...]]) -> Any:
    if isinstance(value, oracle.Tensor) and value.layout is oracle.strided:
        part = value.detach()[cut(value.ndim)].clone()
        return part.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)([_cut(v, cut) for v in value])
    return value


def _dense(value: Any) -> Iterator[Any]:
    if isinstance(value, skimp.Tensor):
        if value.layout is skimp.strided and not value._hollow:
            yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _dense(v)


def _bits(t: Any) -> Any:
    return t.detach().resolve_conj().resolve_neg().numpy().copy()


def _unchanged(call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the call worked; what it was given, made, and got back has not changed."""
    given = [*_dense(args), *_dense(list(kwargs.values()))]
    before = [_bits(t) for t in given]
    skimp.manual_seed(0)
    try:
        made = [t for t in _dense(call(*args, **kwargs)) if t.requires_grad]
    except Exception:
        made = None
    if made:
        given += [*made, *[skimp.ones_like(t.detach()) for t in made]]
        before = [*before, *[_bits(t) for t in given[len(before) :]]]
        try:
            skimp.autograd.backward(made, given[-len(made) :])
        except Exception:
            made = None
    for t, bits in zip(given, before, strict=True):
        np.testing.assert_array_equal(_bits(t), bits)
    return made is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ROWS)
def test_nothing_that_is_given_changes(op: str) -> None:
    worked = 0
    for sample in samples_of(op, ROWS[op], count=2):
        for cut in CUTS.values():
            made: dict[int, Any] = {}
            theirs = [_cut(a, cut) for a in sample.args]
            words = {k: _cut(a, cut) for k, a in sample.kwargs.items()}
            args = [entered(skimp, a, made) for a in theirs]
            kwargs = {k: entered(skimp, a, made) for k, a in words.items()}
            if "out" not in kwargs:
                worked += _unchanged(function_of(skimp, sample.op), args, kwargs)
    assert worked or all("out" in s.kwargs for s in samples_of(op, ROWS[op], count=2))


def test_a_pool_of_one_window_leaves_its_input() -> None:
    x = skimp.tensor([[[[1.0, 2.0], [5.0, 6.0]]]], requires_grad=True)
    for _ in range(2):
        skimp.nn.functional.max_pool2d(x, 2).sum().backward()
    assert x.tolist() == [[[[1.0, 2.0], [5.0, 6.0]]]]
    assert x.grad is not None
    assert x.grad.tolist() == [[[[0.0, 0.0], [0.0, 2.0]]]]


def test_a_number_is_padded_by_nothing() -> None:
    assert skimp.nn.functional.pad(skimp.tensor(3.0), []).item() == 3.0
