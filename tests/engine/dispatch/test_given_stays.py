"""Beside a tensor of a subclass, a plain one that a function gives back stays what it is."""

from __future__ import annotations

from typing import Any

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


def _told(lib: Any, call: str, asks: bool) -> list[Any]:
    class Plain(lib.Tensor):
        pass

    class Asked(lib.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    heard: list[str] = []
    k, v = lib.ones(3), lib.zeros(3).as_subclass(Asked if asks else Plain)
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
