"""What a subclass with `__torch_function__` is handed, and what it leaves as it is."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp

CALLS: dict[str, Any] = {
    "to": lambda k, v: k.to(v),
    "to another dtype": lambda k, v: k.double().to(v),
    "to a plain one": lambda k, v: v.to(k),
    "type_as": lambda k, v: k.type_as(v),
    "expand_as": lambda k, v: k.expand_as(v),
    "in place": lambda k, v: k.add_(v),
    "copy_": lambda k, v: k.copy_(v),
}


def _asked(lib: Any, hear: Any = lambda name, rest: None) -> Any:
    """A class that tells which functions it is handed, and what after the first argument."""

    class Asked(lib.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            hear(func.__name__, args[1:])
            return super().__torch_function__(func, types, args, kwargs or {})

    return Asked


def _told(lib: Any, call: str, asks: bool) -> list[Any]:
    class Plain(lib.Tensor):
        pass

    heard: list[str] = []
    asked = _asked(lib, lambda name, _: heard.append(name))
    k, v = lib.ones(3), lib.zeros(3).as_subclass(asked if asks else Plain)
    made = CALLS[call](k, v)
    said = heard[:]
    with lib._C.DisableTorchFunctionSubclass():
        k.fill_(7)
        shares = made.tolist() == [7.0] * 3
    return [type(made).__name__, type(k) is lib.Tensor, made is k, shares, said]


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_plain_tensor_keeps_its_class(call: str, asks: bool) -> None:
    assert _told(skimp, call, asks) == _told(oracle, call, asks)


INDICES: list[Any] = [
    [True, False, True], [0, 2], (0, 1), slice(0, 2), None, ..., 0, (slice(None), [0, 1]), True,
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_is_handed_over_as_it_was_given(index: Any) -> None:
    def said(lib: Any) -> list[Any]:
        heard: list[Any] = []

        def hear(*told: Any) -> None:
            heard.append(told)

        made = lib.arange(6.0).reshape(3, 2).as_subclass(_asked(lib, hear))[index]
        return [heard, type(made).__name__, lib.Tensor.tolist(made)][:2]

    assert said(skimp) == said(oracle)


OPERATORS = [
    "gt", "lt", "ge", "le", "eq", "ne", "add", "sub", "mul", "truediv", "pow", "mod", "floordiv",
    "matmul", "iadd",
]  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_ndarray_beside_one_is_asked_in_its_turn(name: str) -> None:
    """PyTorch's operators say NotImplemented of it, so NumPy's is next."""

    def told(lib: Any) -> list[Any]:
        array, found = np.asarray([0.0, 1.0, 2.0]), []
        for swap in (False, True):
            both = [lib.ones(3).as_subclass(_asked(lib)), array.copy()]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # PyTorch's own, of __array_wrap__
                    made = getattr(operator, name)(*(both[::-1] if swap else both))
                found.append([type(made).__name__, repr(np.asarray(made).tolist())])
            except Exception as error:
                found.append(type(error).__name__)
        return found

    assert told(skimp) == told(oracle)
