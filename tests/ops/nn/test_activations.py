"""Activations against torch: values, dtypes, refusals, in place, out=, two derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import (
    DTYPES,
    OF_TYPES,
    agree,
    array,
    refusals,
    same,
    same_gradients,
    twin,
)

Call = Callable[[Any, Any], Any]
INF, NAN = float("inf"), float("nan")

ROWS: dict[str, Call] = {
    "relu": lambda nn, x: nn.relu(x),
    "relu6": lambda nn, x: nn.relu6(x * 4),
    "hardtanh": lambda nn, x: nn.hardtanh(x),
    "hardtanh limits": lambda nn, x: nn.hardtanh(x, -1.5, 0.75),
    "threshold": lambda nn, x: nn.threshold(x, 0.3, 2.0),
    "leaky_relu": lambda nn, x: nn.leaky_relu(x),
    "leaky_relu steep": lambda nn, x: nn.leaky_relu(x, negative_slope=-1.5),
    "rrelu": lambda nn, x: nn.rrelu(x, 0.1, 0.4),
    "elu": lambda nn, x: nn.elu(x, 1.3),
    "selu": lambda nn, x: nn.selu(x),
    "celu": lambda nn, x: nn.celu(x, 0.7),
    "gelu": lambda nn, x: nn.gelu(x),
    "gelu tanh": lambda nn, x: nn.gelu(x, approximate="tanh"),
    "silu": lambda nn, x: nn.silu(x),
    "mish": lambda nn, x: nn.mish(x),
    "softplus": lambda nn, x: nn.softplus(x),
    "softplus steep": lambda nn, x: nn.softplus(x, 2, 1.5),
    "hardshrink": lambda nn, x: nn.hardshrink(x, 0.4),
    "softshrink": lambda nn, x: nn.softshrink(x, 0.4),
    "tanhshrink": lambda nn, x: nn.tanhshrink(x),
    "sigmoid": lambda nn, x: nn.sigmoid(x),
    "hardsigmoid": lambda nn, x: nn.hardsigmoid(x * 3),
    "logsigmoid": lambda nn, x: nn.logsigmoid(x),
    "tanh": lambda nn, x: nn.tanh(x),
    "softsign": lambda nn, x: nn.softsign(x),
    "hardswish": lambda nn, x: nn.hardswish(x * 3),
    "glu": lambda nn, x: nn.glu(x),
    "glu first": lambda nn, x: nn.glu(x, 0),
}
IN_PLACE: dict[str, Call] = {
    "relu": lambda nn, x: nn.relu(x, inplace=True),
    "relu_": lambda nn, x: nn.relu_(x),
    "relu6": lambda nn, x: nn.relu6(x, True),
    "hardtanh_": lambda nn, x: nn.hardtanh_(x, -0.5, 0.5),
    "threshold_": lambda nn, x: nn.threshold_(x, 0.3, 2.0),
    "leaky_relu_": lambda nn, x: nn.leaky_relu_(x, 0.2),
    "rrelu_": lambda nn, x: nn.rrelu_(x),
    "elu_": lambda nn, x: nn.elu_(x, 1.3),
    "selu_": lambda nn, x: nn.selu_(x),
    "celu_": lambda nn, x: nn.celu_(x, 0.7),
    "silu": lambda nn, x: nn.silu(x, inplace=True),
    "mish": lambda nn, x: nn.mish(x, inplace=True),
    "hardsigmoid": lambda nn, x: nn.hardsigmoid(x, inplace=True),
    "hardswish": lambda nn, x: nn.hardswish(x, inplace=True),
}
LAID_OUT_ANEW = ("rrelu", "logsigmoid", "glu", "glu first")  # torch's results are row-major
ONCE = ("hardsigmoid",)  # torch has no second derivative
NODES = {"tanhshrink": "SubBackward0", "softsign": "DivBackward0"}


def functional(f: Call) -> Callable[[Any, Any], Any]:
    return lambda lib, x: f(lib.nn.functional, x)


def spread(dtype: str) -> torch.Tensor:
    """Numbers on both sides of every kink."""
    x = torch.linspace(-2.6, 2.8, 24, dtype=torch.float64).reshape(4, 6)
    if dtype.startswith("complex"):
        return torch.complex(x, x.flip(0)).to(getattr(torch, dtype))
    return (x > 0).to(torch.bool) if dtype == "bool" else x.to(getattr(torch, dtype))


def tolerance(dtype: str) -> float:
    return {"bfloat16": 2e-2, "float16": 2e-3}.get(dtype, 2e-6)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "uint8"])
@pytest.mark.parametrize("name", ROWS)
def test_values(name: str, dtype: str) -> None:
    x, f = spread(dtype), functional(ROWS[name])
    agree(f, x, tolerance=tolerance(dtype), message=25, refused=OF_TYPES)
    agree(
        f,
        x.t().contiguous().t(),
        tolerance=tolerance(dtype),
        message=25,
        strides=name not in LAID_OUT_ANEW,
        refused=OF_TYPES,
    )
    agree(
        f,
        x[:0] if "first" not in name else x[:, :0],
        tolerance=tolerance(dtype),
        message=25,
        refused=OF_TYPES,
    )


@pytest.mark.parametrize("name", ROWS)
def test_odd_places(name: str) -> None:
    x = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1e-20, -1e-20, 88.0, -88.0, 0.5, -0.5, 3.0])
    if "gelu" in name:
        x = x[x.abs() != INF]  # torch's vectorised float32 gives NaN there, its other loops don't
    for dtype in (torch.float32, torch.float64):
        agree(functional(ROWS[name]), x.to(dtype), tolerance=2e-6)


@pytest.mark.parametrize("name", ROWS)
def test_gradients(name: str) -> None:
    if name not in ONCE:
        same_gradients(functional(ROWS[name]), spread("float64"), tolerance=1e-7)
    for dtype in (torch.float32, torch.bfloat16):
        x = spread("float64").to(dtype).requires_grad_()
        ours, theirs = twin(x), functional(ROWS[name])(torch, x)
        theirs.sum().backward()
        made = functional(ROWS[name])(skimp, ours)
        if theirs.grad_fn is not None:
            assert made.grad_fn.name() == NODES.get(name, theirs.grad_fn.name())
        made.sum().backward()
        assert x.grad is not None
        same(ours.grad, x.grad, 2e-5 if dtype is torch.float32 else 3e-2)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name: str) -> None:
    f = IN_PLACE[name]
    for dtype in ("float32", "bfloat16", "int64"):
        agree(
            lambda lib, x: f(lib.nn.functional, x.clone()),
            spread(dtype),
            tolerance=tolerance(dtype),
            message=25,
            refused=OF_TYPES,
        )
    if name not in ONCE:
        same_gradients(
            lambda lib, x: f(lib.nn.functional, x * 1.0), spread("float64"), tolerance=1e-7
        )
    x = skimp.randn(4)
    assert f(skimp.nn.functional, x) is x
    assert x._version == 1


def test_in_place_with_a_negative_slope_has_no_derivative() -> None:
    for lib in (torch, skimp):
        for f in (lambda nn, x: nn.leaky_relu_(x, -0.5), lambda nn, x: nn.elu_(x, -1.0)):
            y = f(lib.nn.functional, lib.ones(3, requires_grad=True) * -1.0)
            with pytest.raises(RuntimeError, match="triggered with a negative slope"):
                y.sum().backward()


def test_prelu() -> None:
    def f(lib: Any, x: Any, w: Any) -> Any:
        return lib.nn.functional.prelu(x, w)

    x = spread("float64").reshape(2, 3, 4)
    weight = torch.tensor([0.1, -0.5, 2.0], dtype=torch.float64)
    for w in (weight, weight[:1], weight[0]):
        agree(f, x, w)
        same_gradients(f, x, w, tolerance=1e-9)
    agree(f, x[0, 0], weight[:1])
    agree(f, x[0, 0, 0], weight[:1])
    agree(f, x.float(), weight, refused=RuntimeError)
    agree(f, x, weight[:2], refused=RuntimeError)
    agree(f, x[0, 0, 0], weight, refused=RuntimeError)
    agree(lambda lib, x, w: x.prelu(w), x, weight)


def test_rrelu_draws_as_torch_does() -> None:
    for dtype in (torch.float32, torch.float64):
        x = spread("float64").to(dtype).requires_grad_()
        ours = twin(x)
        for lib in (torch, skimp):
            lib.manual_seed(7)
        theirs = torch.nn.functional.rrelu(x, 0.1, 0.9, training=True)
        made = skimp.nn.functional.rrelu(ours, 0.1, 0.9, training=True)
        same(made, theirs, 1e-7)
        theirs.sum().backward()
        made.sum().backward()
        same(ours.grad, x.grad, 1e-7)
        assert skimp.rand(1).item() == torch.rand(1).item()


REFUSED: dict[type[Exception], list[Any]] = {
    IndexError: [lambda nn, x: nn.glu(x, 2)],
    RuntimeError: [
        lambda nn, x: nn.celu(x, 0),
        lambda nn, x: nn.gelu(x, approximate="sigmoid"),
        lambda nn, x: nn.softshrink(x, -1.0),
        lambda nn, x: nn.rrelu(x, 0.9, 0.1),
        lambda nn, x: nn.glu(x[:, :5]),
        lambda nn, x: nn.glu(x[0, 0]),
        lambda nn, x: nn.relu(x > 0),
        lambda nn, x: nn.hardtanh(x > 0),
    ],
    ValueError: [lambda nn, x: nn.hardtanh(x, 1.0, -1.0)],
}


@pytest.mark.parametrize(("error", "case"), refusals(REFUSED))
def test_refusals(error: Any, case: Any) -> None:
    agree(functional(case), spread("float32"), refused=error, message=35)


def test_limits_below_zero_are_not_for_unsigned_types() -> None:
    agree(
        lambda lib, x: lib.nn.functional.hardtanh(x),
        torch.tensor([1, 2], dtype=torch.uint8),
        refused=RuntimeError,
    )


@pytest.mark.parametrize(
    "name", ["gelu", "softplus", "logsigmoid", "hardshrink", "softshrink", "glu"]
)
def test_out(name: str) -> None:
    x, out = spread("float32"), torch.empty(0)
    agree(
        lambda lib, x, o: getattr(
            lib.nn.functional if lib is skimp or name == "hardshrink" else lib._C._nn,
            {"logsigmoid": "log_sigmoid"}.get(name, name) if lib is torch else name,
        )(x, out=o.clone()),
        x,
        out,
        tolerance=2e-6,
    )


def test_names_in_torch() -> None:
    x = skimp.tensor([-1.0, 2.0])
    for name in ("relu", "selu", "celu", "rrelu", "hardshrink", "sigmoid", "tanh"):
        assert getattr(skimp, name)(x).tolist() == getattr(skimp.nn.functional, name)(x).tolist()
    assert skimp.threshold(x, 0.0, 5.0).tolist() == [5.0, 2.0]
    assert x.relu().tolist() == [0.0, 2.0]
    assert x.relu_() is x


def test_relu_keeps_its_result_and_no_input() -> None:
    x = skimp.randn(8, requires_grad=True)
    y = skimp.relu(x * 2.0)
    assert [n for n in dir(y.grad_fn) if n.startswith("_saved_")] in (["_saved_result"], [])
    y.sum().backward()
    np.testing.assert_array_equal(
        array(x.grad), np.where(array(x) > 0, 2.0, 0.0).astype(np.float32)
    )


def test_large_and_small_give_the_same_bits() -> None:
    x = torch.linspace(-3, 3, 1 << 17)
    for name, f in ROWS.items():
        if "glu" in name.split():
            continue
        with skimp.config.using(defer="always"):
            deferred = f(skimp.nn.functional, twin(x))
        with skimp.config.using(defer="never"):
            eager = f(skimp.nn.functional, twin(x))
        np.testing.assert_array_equal(array(deferred), array(eager))


@pytest.mark.parametrize(
    ("name", "args"), [("elu", ()), ("selu", ()), ("celu", ()), ("elu", (0.0,)), ("elu", (-1.0,))]
)
def test_the_sign_of_a_zero_stays(name: str, args: tuple[float, ...]) -> None:
    x = torch.tensor([-0.0, 0.0, -1.0, 2.0, -0.25]).repeat(33)
    theirs = getattr(torch.nn.functional, name)(x, *args)
    ours = getattr(skimp.nn.functional, name)(twin(x), *args)
    np.testing.assert_array_equal(np.signbit(array(ours)), np.signbit(theirs.numpy()))


@pytest.mark.parametrize("alpha", [0.2, 1.7, 3.0])
def test_celu_rounds_as_its_formula(alpha: float) -> None:
    """Near zero, where rounding may put the curve below its tangent."""
    x = -np.logspace(-10, -2, 5000).astype("f4")
    wanted = np.expm1(x * np.float32(1 / alpha)) * np.float32(alpha)
    made = skimp.nn.functional.celu(skimp.tensor(x), alpha)
    np.testing.assert_array_equal(array(made), wanted)


@pytest.mark.parametrize("name", [name for name in ROWS if "glu" not in name])
def test_a_number(name: str) -> None:
    for value in (-1.5, 0.5):
        for dtype in (torch.float32, torch.float64, torch.float16):
            agree(
                lambda lib, x: ROWS[name](lib.nn.functional, x),
                torch.tensor(value, dtype=dtype),
                tolerance=2e-3,
            )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
@pytest.mark.parametrize("name", ["threshold", "hardtanh", "threshold_"])
def test_numbers_beside_integers_are_of_their_type(name: str, dtype: str) -> None:
    numbers = [-300, -255, -1, -0.5, 0, 3.7, 255, 300, 1e9, 1e30, np.nan, -np.inf]
    for args in [(a, b) for a in numbers for b in numbers]:
        found = []
        for lib in (torch, skimp):
            try:
                x = lib.tensor([0, 1, 100], dtype=getattr(lib, dtype))
                made = getattr(lib.nn.functional, name)(x, *args)
                found.append((str(made.dtype).split(".")[1], made.tolist()))
            except (RuntimeError, ValueError) as error:
                found.append(str(error))
        assert found[0] == found[1], args


def test_numbers_without_a_limit_and_beyond_the_type() -> None:
    values = [-1.0, 0.0, 2.0, -0.0]
    for t in (skimp, torch):
        F = t.nn.functional
        assert F.elu(t.tensor(values), alpha=math.inf).tolist() == [-math.inf, 0.0, 2.0, 0.0]
        for dtype in (t.float16, t.float32):
            x = t.tensor(values, dtype=dtype)
            for call in (F.hardtanh, F.threshold):
                with pytest.raises(RuntimeError, match="without overflow"):
                    call(x, -1e39, 1e39)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("number", [1e5, -1e5, 65520.0, 1e39, -1e39, math.inf])
@pytest.mark.parametrize("first", [True, False])
def test_thresholds_of_halves_are_floats(dtype: str, number: float, first: bool) -> None:
    def answer(t: Any) -> Any:
        x = t.tensor([-1.0, 0.5, 3.0], dtype=getattr(t, dtype))
        args = (number, 1.0) if first else (0.1, number)
        try:
            return t.nn.functional.threshold(x, *args).tolist()
        except RuntimeError as error:
            return str(error)

    assert answer(skimp) == answer(torch)


@pytest.mark.parametrize("limits", [(1.0, -1.0), (-1.0, 1.0), (2, -1), (0.5, 0.5)])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_limits_that_are_turned(kind: str, limits: tuple[float, float]) -> None:
    """`hardtanh_` takes the upper one; `hardtanh` refuses them, whatever was called before."""

    def run(lib: Any) -> Any:
        F, x = lib.nn.functional, lib.arange(-3, 3).to(getattr(lib, kind))
        found = [F.hardtanh_(x.clone(), *limits).tolist() for _ in range(3)]
        for inplace in (False, True):
            try:
                found.append(F.hardtanh(x.clone(), *limits, inplace).tolist())
            except ValueError as error:
                found.append(str(error))
        return found

    assert run(skimp) == run(torch)
