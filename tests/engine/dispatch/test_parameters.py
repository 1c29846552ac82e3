"""Tensors where an op takes a plain value: nothing remembers them after the call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp

CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "leaky_relu": lambda lib, x, p: lib.nn.functional.leaky_relu(x, p),
    "elu": lambda lib, x, p: lib.nn.functional.elu(x, p),
    "celu": lambda lib, x, p: lib.nn.functional.celu(x, p),
    "softshrink": lambda lib, x, p: lib.nn.functional.softshrink(x, p),
    "hardshrink": lambda lib, x, p: lib.nn.functional.hardshrink(x, p),
    "clamp": lambda lib, x, p: x.clamp(p, p + 1),
    "pow": lambda lib, x, p: x.pow(p),
    "lerp": lambda lib, x, p: x.lerp(x * 2, p),
    "nan_to_num": lambda lib, x, p: x.nan_to_num(p),
}


@pytest.mark.parametrize("shape", [(3,), (6, 2)])
@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_as_a_parameter_is_forgotten(name: str, shape: tuple[int, ...]) -> None:
    expected = CALLS[name](torch, torch.ones(*shape).t() - 3, torch.tensor(0.25))
    value = skimp.tensor(0.25)
    seen = weakref.ref(value)
    found = CALLS[name](skimp, skimp.ones(*shape).t() - 3, value)
    torch.testing.assert_close(torch.tensor(found.tolist()), expected, equal_nan=True)
    del value, found
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("given", [("cpu", -5), (-1,), ("cuda", -1), ("cpu", 0), ("cuda", 3)])
def test_indices_of_devices_are_not_negative(given: tuple[Any, ...]) -> None:
    def answer(lib: Any) -> Any:
        try:
            return str(lib.device(*given))
        except RuntimeError as error:
            return str(error)

    assert answer(skimp) == answer(torch)
