"""Which functions `__torch_function__` is asked about: those of PyTorch, under its names."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import skimp

Call = Callable[[Any, Any], Any]


def _tensors(lib: Any, made: Callable[[Any], Any]) -> Any:
    class Held:
        floats = made(lib.tensor([1.0, 2.0]))
        ints = made(lib.tensor([3, 1]))
        flags = made(lib.tensor([True, False]))
        one = made(lib.tensor(2))
        leaf = made(lib.tensor([1.0, 2.0])).requires_grad_()

    return Held


def _of_two(name: str) -> dict[str, Call]:
    op = getattr(operator, name)
    return {
        f"tensor {name} tensor": lambda _, t: op(t.floats, t.floats),
        f"number {name} tensor": lambda _, t: op(2.0, t.floats),
        f"tensor {name} number": lambda _, t: op(t.floats, 2.0),
    }


def _of_integers(name: str) -> dict[str, Call]:
    op = getattr(operator, name)
    return {
        f"integers {name}": lambda _, t: op(t.ints, t.ints),
        f"number {name} integers": lambda _, t: op(2, t.ints),
    }


def _in_place(name: str, which: str) -> dict[str, Call]:
    op = getattr(operator, name)
    return {name: lambda _, t: op(getattr(t, which).clone(), 2)}


CALLS: dict[str, Call] = {
    "neg": lambda _, t: -t.floats,
    "pos": lambda _, t: +t.floats,
    "abs": lambda _, t: abs(t.floats),
    "invert": lambda _, t: ~t.flags,
    "getitem": lambda _, t: t.floats[0],
    "setitem": lambda _, t: operator.setitem(t.floats, 0, 1.0),
    "int": lambda _, t: int(t.one),
    "float": lambda _, t: float(t.one),
    "bool": lambda _, t: bool(t.one),
    "complex": lambda _, t: complex(t.one),
    "index": lambda _, t: operator.index(t.one),
    "len": lambda _, t: len(t.floats),
    "contains": lambda _, t: 1.0 in t.floats,
    "repr": lambda _, t: repr(t.one),
    "str": lambda _, t: str(t.one),
    "hash": lambda _, t: hash(t.floats),
    "reversed": lambda _, t: reversed(t.floats),
    "__array__": lambda _, t: t.floats.__array__(),
    "__dlpack__": lambda _, t: t.floats.__dlpack__(),
    "backward": lambda _, t: (t.leaf * t.leaf).sum().backward(),
    "detach": lambda _, t: t.floats.detach(),
    "requires_grad_": lambda _, t: t.floats.clone().requires_grad_(),
    "register_hook": lambda _, t: t.leaf.register_hook(print),
    "register_post_accumulate_grad_hook": lambda _, t: (
        t.leaf.register_post_accumulate_grad_hook(print)
    ),
    "retain_grad": lambda _, t: t.leaf.retain_grad(),
    "cumsum_": lambda _, t: t.floats.clone().cumsum_(0),
    "is_inference": lambda _, t: t.floats.is_inference(),
    "item": lambda _, t: t.one.item(),
    "tolist": lambda _, t: t.floats.tolist(),
    "numpy": lambda _, t: t.floats.numpy(),
    "size": lambda _, t: t.floats.size(),
    "untyped_storage": lambda _, t: t.floats.untyped_storage(),
    "stack": lambda lib, t: lib.stack([t.floats, t.floats]),
    "relu": lambda lib, t: lib.nn.functional.relu(t.floats),
    "T and mT": lambda _, t: t.floats.reshape(1, 2).T.mT,
    "data = ": lambda _, t: setattr(t.floats, "data", t.leaf.data),
    "grad = ": lambda _, t: setattr(t.leaf, "grad", None),
    "requires_grad = ": lambda _, t: setattr(t.leaf, "requires_grad", True),
    **{
        f".{name}": (lambda _, t, name=name: getattr(t.leaf, name))
        for name in (
            "_version", "data", "device", "dtype", "grad", "grad_fn", "is_cpu", "is_cuda",
            "is_leaf", "is_meta", "is_quantized", "is_sparse", "itemsize", "layout", "nbytes",
            "ndim", "output_nr", "real", "requires_grad", "retains_grad", "shape",
        )
    },
}  # fmt: skip
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge"):
    CALLS |= _of_two(_name)
for _name in ("eq", "ne"):
    CALLS |= _of_two(_name)
for _name in ("and_", "or_", "xor", "lshift", "rshift"):
    CALLS |= _of_integers(_name)
for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"):
    CALLS |= _in_place(_name, "floats")
for _name in ("iand", "ior", "ixor", "ilshift", "irshift"):
    CALLS |= _in_place(_name, "ints")


def asked(lib: Any, call: Call, mode: bool) -> list[str]:
    """The names of the functions that a subclass, or a mode, is asked about."""
    log: list[str] = []

    class Held(lib.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(lib.overrides.resolve_name(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    class Watching(lib.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(lib.overrides.resolve_name(func))
            return func(*args, **(kwargs or {}))

    tensors = _tensors(lib, (lambda t: t) if mode else (lambda t: t.as_subclass(Held)))
    log.clear()
    with Watching() if mode else nullcontext():
        call(lib, tensors)
    return log


@pytest.mark.parametrize("mode", [False, True], ids=["subclass", "mode"])
@pytest.mark.parametrize("name", CALLS)
def test_the_functions_that_are_asked_about_are_pytorchs(name: str, mode: bool) -> None:
    ours = asked(skimp, CALLS[name], mode)
    assert ours == asked(torch, CALLS[name], mode)
    assert ours or name == "hash"


@pytest.mark.parametrize("name", ["sub", "truediv", "pow", "lt", "add"])
def test_the_left_operands_operator_goes_first(name: str) -> None:
    def kinds(lib: Any) -> list[Any]:
        class Held(lib.Tensor):  # type: ignore[misc]
            pass

        plain, held = lib.tensor([5.0, 7.0]), lib.tensor([1.0, 2.0]).as_subclass(Held)
        found = [getattr(operator, name)(*pair) for pair in ((plain, held), (held, plain))]
        return [(type(t).__name__, t.tolist()) for t in found]

    assert kinds(skimp) == kinds(torch)


def test_nothing_is_asked_when_the_mode_is_over() -> None:
    own = dict(vars(skimp.Tensor))
    x = skimp.ones(2)
    with skimp.overrides.TorchFunctionMode.push(), skimp._C.DisableTorchFunction():
        assert x.shape == (2,)
        assert len(x) == 2
    assert {name: f for name, f in vars(skimp.Tensor).items() if own.get(name) is not f} == {}
    assert len(x) == 2


def test_questions_inside_a_handler_are_not_asked_again() -> None:
    class Sized(skimp.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func == skimp.Tensor.shape.__get__:
                return (*super().__torch_function__(func, types, args, kwargs or {}), 7)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = skimp.ones(2, 3).as_subclass(Sized)
    assert x.shape == (2, 3, 7)
    assert x.size() == (2, 3)
    assert (x @ x.T).tolist() == [[3.0, 3.0], [3.0, 3.0]]


WRITTEN_IN_PYTHON: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("interpolate", ((12, 9),), {"mode": "bilinear"}),
    ("max_pool2d", (2,), {}),
    ("cross_entropy", (1, None, True), {}),
    ("layer_norm", ((3,), 2), {}),
    ("dropout", (0.1,), {"inplace": True}),
    ("elu", (), {}),
    ("kl_div", (1,), {"reduction": "sum"}),
    ("gelu", (), {}),  # this one is not
]


@pytest.mark.parametrize(("name", "args", "kwargs"), WRITTEN_IN_PYTHON)
def test_a_handler_gets_by_name_what_has_a_default(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    def seen(lib: Any) -> Any:
        class Foreign:
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                same = func is getattr(lib.nn.functional, name)
                return same or name == "max_pool2d", len(args), args[1:], list(kwargs.items())

        return getattr(lib.nn.functional, name)(Foreign(), *args, **kwargs)

    assert seen(skimp) == seen(torch)


@pytest.mark.parametrize("lib", [skimp, torch])
def test_a_class_on_the_left_of_a_division_may_take_numbers_there(lib: Any) -> None:
    class Vector:
        def __init__(self, of: list[float]) -> None:
            self.of = of

        def __rmul__(self, by: Any) -> Vector:
            return Vector([float(v * by) for v in self.of])

    assert (Vector([1.0, 3.0]) / lib.tensor(2.0)).of == [0.5, 1.5]
    with pytest.raises(TypeError, match="unsupported operand"):
        object() / lib.tensor(2.0)


@pytest.mark.parametrize("lib", [skimp, torch])
def test_a_plain_method_is_asked_with_a_warning(lib: Any) -> None:
    class Foreign:
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func.__name__, types

    with pytest.warns(DeprecationWarning, match="as a plain method is deprecated"):
        assert lib.nn.functional.relu(Foreign()) == ("relu", (Foreign,))
