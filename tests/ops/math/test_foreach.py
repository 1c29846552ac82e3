"""`torch._foreach_*` against torch: values, what is returned, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import skimp

NAMES = sorted(n for n in dir(torch) if n.startswith("_foreach_"))
_SECOND = {"add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"}


def lists(lib: Any) -> tuple[list[Any], list[Any], list[Any]]:
    return tuple(  # type: ignore[return-value]
        [lib.tensor([0.25 * k, 0.5, 0.75]), lib.tensor([[0.5, 0.125 * k], [0.25, 0.375]])]
        for k in (1, 2, 3)
    )


def operands(name: str, lib: Any) -> list[tuple[Any, ...]]:
    a, b, c = lists(lib)
    base = name.removeprefix("_foreach_").rstrip("_")
    if base in _SECOND:
        return [(a, b), (a, 2.0), (a, [1.0, 2.0])]
    if base in ("addcmul", "addcdiv"):
        return [(a, b, c), (a, b, c, [1.0, 2.0]), (a, b, c, 3.0)]
    if base == "lerp":
        return [(a, b, 0.25), (a, b, c)]
    if base == "mm":
        return [([a[1], b[1]], [b[1], c[1]])]
    if base == "copy":
        return [(a, b)]
    return [(a, 2.0), (a,)] if base in ("norm", "powsum") else [(a,)]


@pytest.mark.parametrize("name", NAMES)
def test_each_of_a_list(name: str) -> None:
    for ours, theirs in zip(operands(name, skimp), operands(name, torch), strict=True):
        found = getattr(skimp, name)(*ours)
        expected = getattr(torch, name)(*theirs)
        assert type(found) is type(expected)
        assert (found is ours[0]) is (expected is theirs[0])
        for x, y in zip(found, expected, strict=True):
            assert str(x.dtype) == str(y.dtype)
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-6, atol=1e-7)
        for x, y in zip(ours[0], theirs[0], strict=True):
            assert x._version == y._version


def test_a_number_to_the_powers_of_a_list() -> None:
    a, b = skimp._foreach_pow(2.0, [skimp.tensor([1.0, 2.0]), skimp.tensor(3.0)])
    assert (a.tolist(), b.item()) == ([2.0, 4.0], 8.0)


@pytest.mark.parametrize("other", [[1.0], "short", "none"])
def test_lengths_that_differ_are_refused(other: Any) -> None:
    for lib in (torch, skimp):
        a = [lib.ones(2), lib.ones(3)]
        given = {"short": a[:1], "none": 1.0}.get(other, other) if isinstance(other, str) else other
        first = [] if other == "none" else a
        with pytest.raises(RuntimeError, match="Tensor list"):
            lib._foreach_add(first, given)


def test_gradients_flow_through_each() -> None:
    a = [skimp.ones(2, requires_grad=True), skimp.ones(3, requires_grad=True)]
    sum(t.sum() for t in skimp._foreach_mul(a, [2.0, 3.0])).backward()
    assert [t.grad.tolist() for t in a] == [[2.0] * 2, [3.0] * 3]
